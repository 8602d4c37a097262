//! From when to when a number means one process or one thread.
//!
//! A pid or tid means one process or thread only within one *instance*: from its fork or creation to its exit. So
//! everything is looked up by number *and* instant. What happens at a boundary belongs to the instance that begins there.
//! Where no birth is on record, an instance fills the gap between its neighbours:
//!
//! ```text
//!   pid 100   [ first ]exit 20      seen 30 [ gap: 20 to 50 ]      [ third: fork 50 …
//!   a time off the CPU        15 |--------------------------------------| 60
//!                                it began in the first and ends with it, at 20: nothing of it is the third's
//! ```

use std::ops::DerefMut;

use super::interner::Thread;

/// How a thread or process came to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Birth {
    /// When.
    pub at_ns: u64,
    /// Who created it.
    pub parent: Thread,
}

/// From when to when one process or thread existed, as far as that is on record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lifetime {
    /// Known when it was forked or created under watch.
    pub birth: Option<Birth>,
    /// It began no earlier: the one before it ended then.
    after_ns: u64,
    /// When it ended.
    pub died_ns: Option<u64>,
    /// When it was first seen.
    pub seen_ns: u64,
}

impl Lifetime {
    pub(super) fn begin_ns(&self) -> u64 {
        self.birth.map_or(self.after_ns, |birth| birth.at_ns)
    }

    /// Whether it is the one that was born at `at_ns`: known already, or first seen after a birth that is told of late.
    pub(super) fn is_born_at(&self, at_ns: u64) -> bool {
        self.birth.map_or(self.seen_ns > at_ns, |birth| birth.at_ns == at_ns)
    }

    /// Of a thread: it exists no longer than its process.
    pub(super) fn within(self, process: &Lifetime) -> Self {
        let died_ns = [self.died_ns, process.died_ns].into_iter().flatten().min();
        Self { after_ns: self.after_ns.max(process.begin_ns()), died_ns, ..self }
    }
}

/// What has a lifetime is asked for it directly.
macro_rules! has_lifetime {
    ($type:ty) => {
        impl std::ops::Deref for $type {
            type Target = Lifetime;
            fn deref(&self) -> &Lifetime {
                &self.lifetime
            }
        }

        impl std::ops::DerefMut for $type {
            fn deref_mut(&mut self) -> &mut Lifetime {
                &mut self.lifetime
            }
        }
    };
}
pub(super) use has_lifetime;

/// All instances of one number, by their beginning; none overlap.
#[derive(Debug)]
pub(super) struct Instances<T>(pub(super) Vec<T>);

impl<T> Default for Instances<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<T: DerefMut<Target = Lifetime>> Instances<T> {
    /// How many began by `at_ns`.
    fn begun(&self, at_ns: u64) -> usize {
        self.0.partition_point(|instance| instance.begin_ns() <= at_ns)
    }

    /// The one that existed at `at_ns`, its end included: the last that began by then, unless it had ended before.
    pub(super) fn position(&self, at_ns: u64) -> Option<usize> {
        let at = self.begun(at_ns).checked_sub(1)?;
        self.0[at].died_ns.is_none_or(|died_ns| at_ns <= died_ns).then_some(at)
    }

    /// The one that something which begins at `at_ns` belongs to: no longer one that ended then.
    pub(super) fn position_from(&self, at_ns: u64) -> Option<usize> {
        self.position(at_ns).filter(|&at| self.0[at].died_ns != Some(at_ns))
    }

    pub(super) fn find(&self, at_ns: u64) -> Option<&T> {
        self.position(at_ns).map(|at| &self.0[at])
    }

    /// The last that began by `at_ns`, whether or not it has ended.
    pub(super) fn latest(&self, at_ns: u64) -> Option<&T> {
        self.0[..self.begun(at_ns)].last()
    }

    pub(super) fn find_mut(&mut self, at_ns: u64) -> Option<&mut T> {
        self.position(at_ns).map(|at| &mut self.0[at])
    }

    pub(super) fn find_from(&self, at_ns: u64) -> Option<&T> {
        self.position_from(at_ns).map(|at| &self.0[at])
    }

    /// The one at `known`; where there is none, one that fills the gap around `at_ns`.
    pub(super) fn get_or_fill(&mut self, known: Option<usize>, at_ns: u64, new: impl FnOnce(Lifetime) -> T) -> &mut T {
        let at = known.unwrap_or_else(|| {
            let next = self.begun(at_ns);
            let after_ns = next.checked_sub(1).and_then(|before| self.0[before].died_ns).unwrap_or(0);
            let lifetime = Lifetime { birth: None, after_ns, died_ns: self.begin_ns(next), seen_ns: at_ns };
            self.insert(next, new(lifetime));
            next
        });
        &mut self.0[at]
    }

    /// One begins at `at_ns`, with what existed there until then at its end.
    pub(super) fn begin(&mut self, birth: Option<Birth>, at_ns: u64, new: impl FnOnce(Lifetime) -> T) {
        let next = self.begun(at_ns);
        if let Some(before) = next.checked_sub(1).map(|before| &mut self.0[before]) {
            before.died_ns = Some(before.died_ns.map_or(at_ns, |died_ns| died_ns.min(at_ns)));
        }
        let lifetime = Lifetime { birth, after_ns: at_ns, died_ns: self.begin_ns(next), seen_ns: at_ns };
        self.insert(next, new(lifetime));
    }

    fn insert(&mut self, at: usize, instance: T) {
        if self.0.is_empty() {
            // Nearly always the only one.
            self.0.reserve_exact(1);
        }
        self.0.insert(at, instance);
    }

    fn begin_ns(&self, at: usize) -> Option<u64> {
        self.0.get(at).map(|instance| instance.begin_ns())
    }
}
