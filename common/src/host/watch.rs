//! In which stretches of time a tracer watched a process.
//!
//! A `watch` opens a stretch; the tracer's `end` closes it. Of several tracers of one kind, a joined stream doesn't
//! say which one a `watch` or an `end` is of, so an `end` closes what is open of every process, and what the others
//! go on to tell opens it again: who reports on a process after the end of one tracer is another one, and watched it
//! then already, unless it says that it begins to.
//!
//! ```text
//!   tracer 1   watch |-----------| end
//!   tracer 2                                 watch |-------| end
//!   watched          |===========|                 |=======|           nothing is known of the time between
//!
//!   tracer 1   watch |-----------| end
//!   tracer 2   watch |------------------ record ---------| end
//!   watched          |===========|================|======|             the record tells that somebody watches
//!                                |- no record of it -|                 and of a silent process nothing does
//! ```
//!
//! Where one of several was killed, any process may have been its: each is known to be watched until it was last
//! heard of.

/// Stretches that are told apart; what comes after counts as not watched.
const MAX_SPANS: usize = 1024;
/// A record so little behind the end of its tracer may still be its own.
const SKEW_NS: u64 = 1_000_000;

#[derive(Clone, Copy, Debug)]
struct Span {
    since_ns: u64,
    /// Where a tracer's end closed it.
    until_ns: Option<u64>,
    /// It may have been a tracer that was killed, before that end.
    in_doubt: bool,
}

/// A part of some stretch of time that was watched, CLOCK_MONOTONIC nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WatchedPart {
    /// From here…
    pub start_ns: u64,
    /// …to here.
    pub end_ns: u64,
    /// No tracer has said that it stopped watching: what was going on at its end is in no record.
    pub is_open: bool,
}

impl WatchedPart {
    /// Its length.
    pub fn len_ns(self) -> u64 {
        self.end_ns - self.start_ns
    }
}

/// When one kind of tracer watched one life of a process.
#[derive(Clone, Debug)]
pub struct Watch {
    /// By time; none overlap.
    spans: Vec<Span>,
    heard_ns: u64,
}

impl Watch {
    /// Nobody did.
    pub(super) const fn never() -> Self {
        Self { spans: Vec::new(), heard_ns: 0 }
    }

    /// Until when a tracer told of something that the process did; 0 = never.
    pub fn heard_ns(&self) -> u64 {
        self.heard_ns
    }

    /// A tracer watches the process from `at_ns` on. Says whether nobody did for a while before that, after somebody had.
    pub fn begin(&mut self, at_ns: u64) -> bool {
        let floor_ns = self.spans.iter().rev().nth(1).and_then(|before| before.until_ns).unwrap_or(0);
        match self.spans.last_mut() {
            // Whoever says so before a stop may be the one that stopped.
            Some(last) if last.until_ns.is_none_or(|until_ns| at_ns <= until_ns) => {
                last.since_ns = last.since_ns.min(at_ns).max(floor_ns);
                false
            }
            before => {
                let again = before.is_some();
                if self.spans.len() < MAX_SPANS {
                    // Nearly always the only one.
                    self.spans.reserve_exact(1);
                    self.spans.push(Span { since_ns: at_ns, until_ns: None, in_doubt: false });
                }
                again
            }
        }
    }

    /// A tracer stopped at `at_ns`.
    pub fn stop(&mut self, at_ns: u64) {
        if let Some(last) = self.spans.last_mut().filter(|last| last.until_ns.is_none() && last.since_ns <= at_ns) {
            last.until_ns = Some(at_ns);
        }
    }

    /// A tracer told of something that the process did until `end_ns`.
    pub fn heard(&mut self, end_ns: u64) {
        self.heard_ns = self.heard_ns.max(end_ns);
        if self.spans.len() < MAX_SPANS
            && let Some(last) = self.spans.last_mut()
            && last.until_ns.is_some_and(|until_ns| end_ns > until_ns.saturating_add(SKEW_NS))
        {
            last.until_ns = None;
        }
    }

    /// One of several tracers was killed; no more will come.
    pub fn doubt(&mut self) {
        if let Some(last) = self.spans.last_mut() {
            let heard_ns = self.heard_ns.max(last.since_ns);
            last.until_ns = Some(last.until_ns.map_or(heard_ns, |until_ns| until_ns.min(heard_ns)));
            last.in_doubt = true;
        }
    }

    /// Since when it was first watched.
    pub fn since_ns(&self) -> Option<u64> {
        self.spans.first().map(|span| span.since_ns)
    }

    /// Whether somebody watches it and has not stopped yet.
    pub fn is_open(&self) -> bool {
        self.spans.last().is_some_and(|span| span.until_ns.is_none())
    }

    /// When the last who is known to have watched it stopped.
    pub fn until_ns(&self) -> Option<u64> {
        self.spans.last().and_then(|span| span.until_ns)
    }

    /// Whether that one has said so.
    pub fn stopped_in_order(&self) -> bool {
        self.spans.last().is_some_and(|span| span.until_ns.is_some() && !span.in_doubt)
    }

    /// Where one stretch of watching holds all of [`from_ns`, `to_ns`]: whether no tracer has said that it stopped then.
    pub fn covers(&self, from_ns: u64, to_ns: u64) -> Option<bool> {
        let span = self.spans[..self.spans.partition_point(|span| span.since_ns <= from_ns)].last()?;
        let open = span.until_ns.is_none() || span.in_doubt;
        span.until_ns.is_none_or(|until_ns| to_ns <= until_ns).then_some(open)
    }

    /// The watched parts of [`from_ns`, `to_ns`], what is still open up to `open_ns`.
    pub fn parts(&self, from_ns: u64, to_ns: u64, open_ns: u64) -> impl Iterator<Item = WatchedPart> {
        let first = self.spans.partition_point(|span| span.until_ns.is_some_and(|until_ns| until_ns <= from_ns));
        let part = move |span: &Span| WatchedPart {
            start_ns: span.since_ns.max(from_ns),
            end_ns: span.until_ns.unwrap_or(open_ns).min(to_ns),
            is_open: span.until_ns.is_none() || span.in_doubt,
        };
        self.spans[first..].iter().map(part).filter(|part| part.start_ns < part.end_ns)
    }

    /// How much of [`from_ns`, `to_ns`] lies between the end of one tracer and the beginning of the next.
    pub fn between_ns(&self, from_ns: u64, to_ns: u64) -> u64 {
        let pairs = self.spans.windows(2).filter_map(|pair| Some((pair[0].until_ns?, pair[1].since_ns)));
        pairs.map(|(until_ns, since_ns)| since_ns.min(to_ns).saturating_sub(until_ns.max(from_ns))).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn parts(watch: &Watch) -> Vec<(u64, u64, bool)> {
        watch.parts(0, 100 * MS, 90 * MS).map(|p| (p.start_ns / MS, p.end_ns / MS, p.is_open)).collect()
    }

    #[test]
    fn between_two_tracers_nobody_watches() {
        let mut watch = Watch::never();
        assert!(!watch.begin(10 * MS) && !watch.begin(12 * MS));
        watch.stop(40 * MS);
        // Its own last record, some microseconds late.
        watch.heard(40 * MS + 5);
        assert_eq!((parts(&watch), watch.until_ns()), (vec![(10, 40, false)], Some(40 * MS)));
        assert!(watch.begin(60 * MS));
        watch.heard(65 * MS);
        assert_eq!((parts(&watch), watch.until_ns()), (vec![(10, 40, false), (60, 90, true)], None));
        watch.stop(70 * MS);
        assert_eq!(parts(&watch), [(10, 40, false), (60, 70, false)]);
        assert_eq!(watch.parts(45 * MS, 62 * MS, 0).map(WatchedPart::len_ns).collect::<Vec<_>>(), [2 * MS]);
        assert_eq!((watch.between_ns(0, 100 * MS), watch.between_ns(50 * MS, 55 * MS)), (20 * MS, 5 * MS));
    }

    #[test]
    fn who_is_heard_of_after_a_stop_is_watched_by_another() {
        let mut watch = Watch::never();
        watch.begin(10 * MS);
        watch.stop(40 * MS);
        watch.heard(50 * MS);
        assert_eq!(parts(&watch), [(10, 90, true)]);
        watch.stop(60 * MS);
        assert_eq!((parts(&watch), watch.between_ns(0, u64::MAX)), (vec![(10, 60, false)], 0));
    }

    #[test]
    fn who_may_have_been_watched_by_a_killed_tracer_was_until_it_was_heard_of() {
        let mut watch = Watch::never();
        watch.begin(10 * MS);
        watch.heard(30 * MS);
        watch.stop(60 * MS);
        assert!(watch.stopped_in_order());
        watch.doubt();
        assert_eq!((parts(&watch), watch.stopped_in_order()), (vec![(10, 30, true)], false));
    }

    #[test]
    fn a_call_is_watched_where_one_stretch_holds_all_of_it() {
        let mut watch = Watch::never();
        watch.begin(10);
        watch.stop(20);
        watch.begin(30);
        assert_eq!(
            [(9, 12), (10, 20), (12, 21), (22, 24)].map(|(a, b)| watch.covers(a, b)),
            [None, Some(false), None, None]
        );
        assert!(watch.is_open());
    }

    #[test]
    fn what_was_never_watched_stays_so() {
        let mut watch = Watch::never();
        watch.stop(5);
        watch.heard(90 * MS);
        assert_eq!((parts(&watch), watch.since_ns(), watch.until_ns()), (vec![], None, None));
    }
}
