//! One recording that is served: its tables, what ingero-chain found in it, and how far its load is.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use ingero_chain::model::Report;

use crate::load::{Analyst, Plan};
use crate::store::{Cancel, Seen, Store};

/// A tool waits so long for a load before it says that it is not done.
const WAIT: Duration = Duration::from_secs(20);

/// A report of a stream that grows is made anew when it is older than this.
const FRESH: Duration = Duration::from_secs(2);

/// A report may take so long while records keep coming.
const REPORT: Duration = Duration::from_secs(10);

/// A recording.
#[derive(Debug)]
pub struct Recording {
    /// How the tools call it.
    pub name: String,
    /// Its files, for people.
    pub files: String,
    /// It may grow while it is served.
    pub follows: bool,
    /// Its tables.
    pub store: Store,
    pub(crate) analyst: Analyst,
    /// What was counted. Whoever needs the store too takes this first.
    seen: Mutex<Seen>,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// Everything is in the tables.
    done: bool,
    /// What ended the load before its end.
    problem: Option<String>,
    /// Nothing can be served.
    failed: bool,
    report: Option<(Arc<Report>, Instant)>,
}

/// What a tool works on.
#[derive(Clone, Debug)]
pub(crate) struct View {
    /// What ingero-chain says.
    pub(crate) report: Arc<Report>,
    /// Why not everything is there.
    pub(crate) problem: Option<String>,
    /// More may come.
    pub(crate) growing: bool,
}

/// Why there is nothing to work on.
#[derive(Debug)]
pub(crate) enum NotYet {
    /// The load goes on; so many records have been read.
    Loading(u64),
    /// It failed.
    Failed(String),
    /// The client gave up.
    Cancelled,
}

impl Recording {
    pub(crate) fn new(plan: Plan, analyst: Analyst) -> anyhow::Result<Self> {
        Ok(Self {
            files: plan.files_text(),
            name: plan.name,
            follows: plan.follow,
            store: Store::new()?,
            analyst,
            seen: Mutex::default(),
            state: Mutex::default(),
            changed: Condvar::new(),
        })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What was counted. Not to be held for long, and never taken while working on the store.
    pub(crate) fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Everything has been read: takes over what was found. `problem` says why the recording ends early.
    pub(crate) fn finish(&self, problem: Option<String>) -> anyhow::Result<()> {
        // The analysis may be behind, but not for long: it had the same batches.
        let report = self.analyst.report(Duration::from_secs(600));
        self.take_over(report.as_deref())?;
        let mut state = self.lock();
        state.problem = problem;
        state.done = true;
        state.failed = report.is_none();
        state.report = report.map(|report| (report, Instant::now()));
        drop(state);
        self.changed.notify_all();
        Ok(())
    }

    /// Puts findings and totals into the tables.
    fn take_over(&self, report: Option<&Report>) -> anyhow::Result<()> {
        let seen = self.seen();
        self.store.write(|connection| crate::store::write_findings(connection, report, &seen))
    }

    /// The load can't go on and nothing can be served.
    pub(crate) fn fail(&self, problem: String) {
        let mut state = self.lock();
        (state.failed, state.done, state.problem) = (true, true, Some(problem));
        drop(state);
        self.changed.notify_all();
    }

    /// Records so far, and whether that is all.
    pub fn progress(&self) -> (u64, bool) {
        let records = self.seen().records;
        (records, self.lock().done)
    }

    /// What there is to work on. Waits for a load for a while; a recording that is followed is served as it is.
    pub(crate) fn view(&self, cancel: &Cancel) -> Result<View, NotYet> {
        let deadline = Instant::now() + WAIT;
        let mut state = self.lock();
        while !state.done && !self.follows {
            if cancel.load(Ordering::Relaxed) {
                return Err(NotYet::Cancelled);
            }
            if Instant::now() >= deadline {
                drop(state);
                return Err(NotYet::Loading(self.seen().records));
            }
            state =
                self.changed.wait_timeout(state, Duration::from_millis(50)).unwrap_or_else(PoisonError::into_inner).0;
        }
        if state.failed {
            return Err(NotYet::Failed(state.problem.clone().unwrap_or_else(|| "the analysis ended early".into())));
        }
        let growing = !state.done;
        let fresh = |made: &Instant| !growing || made.elapsed() < FRESH;
        let report = state.report.clone().filter(|(_, made)| fresh(made)).map(|(report, _)| report);
        drop(state);
        let report = match report {
            Some(report) => report,
            None => self.renew()?,
        };
        let state = self.lock();
        Ok(View { report, problem: state.problem.clone(), growing })
    }

    fn renew(&self) -> Result<Arc<Report>, NotYet> {
        let report = self.analyst.report(REPORT);
        let Some(report) = report else { return Err(NotYet::Loading(self.seen().records)) };
        self.take_over(Some(&report)).map_err(|error| NotYet::Failed(format!("{error:#}")))?;
        self.lock().report = Some((Arc::clone(&report), Instant::now()));
        Ok(report)
    }
}
