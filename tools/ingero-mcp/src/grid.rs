//! What happened when, coarsely, without keeping it: sums for each slice of time, made while the records go by.
//!
//! The length of a recording is not known beforehand, so a grid begins with narrow slices; when they become too many,
//! neighbours are added up and slices are twice as wide. An interval is spread over the slices that it covers. One that
//! covers many (a thread that sleeps for minutes) costs no more than one that covers two: its ends are added where they
//! lie, and for what is between only the change at both borders is noted.
//!
//! ```text
//!   slices of 10 ns; an interval from 7 to 34:
//!                 0..10   10..20   20..30   30..40
//!   part_ns          3        0        0        4
//!   change           0       +1        0       -1
//!   covered          0        1        1        0     running sum of `change`
//!   in all           3       10       10        4     part_ns + covered x width
//! ```

use std::collections::HashMap;

use ingero_common::record::src;

use crate::row::Row;

/// Slices that are kept before neighbours are added up.
const MAX_SLICES: usize = 4096;
/// The first width: 2^17 ns, 131 us. Powers of two keep slices aligned when they double.
const FIRST_SHIFT: u32 = 17;
/// Lines of slices that are kept, one for each process and kind; what comes beyond is added up under pid 0.
const MAX_LINES: usize = 256;

/// What is summed up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Kind {
    /// Inside outermost CUDA calls: their number, and the time of all threads together.
    Calls,
    /// Runnable without a CPU.
    CpuWait,
    /// In uninterruptible sleep.
    Io,
    /// Lost records: their number.
    Lost,
}

/// Sums over one slice of time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Slice {
    /// Outermost calls that began here.
    pub(crate) calls: u64,
    /// Time of all threads in outermost calls, nanoseconds.
    pub(crate) call_ns: u64,
    /// Time that threads were runnable without a CPU, nanoseconds.
    pub(crate) cpu_wait_ns: u64,
    /// Time in uninterruptible sleep, nanoseconds.
    pub(crate) io_ns: u64,
    /// Records lost in intervals that begin here.
    pub(crate) lost: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Cell {
    n: u64,
    part_ns: u64,
    change: i32,
}

/// The sums of one recording.
#[derive(Clone, Debug)]
pub(crate) struct Grid {
    /// A slice is 2^shift nanoseconds wide.
    shift: u32,
    /// Number of the first slice, counted from 0 on CLOCK_MONOTONIC.
    first: Option<u64>,
    /// Only this stretch counts.
    window: Option<(u64, u64)>,
    lines: HashMap<(u32, Kind), Vec<Cell>>,
}

impl Default for Grid {
    fn default() -> Self {
        Self { shift: FIRST_SHIFT, first: None, window: None, lines: HashMap::new() }
    }
}

impl Grid {
    /// For [`from_ns`, `to_ns`] alone, in slices as narrow as there is room for.
    pub(crate) fn of_window(from_ns: u64, to_ns: u64) -> Self {
        let whole_ns = to_ns.saturating_sub(from_ns);
        let shift = (0..64).find(|shift| (whole_ns >> shift) as usize <= MAX_SLICES - 2).unwrap_or(FIRST_SHIFT);
        Self { shift, first: Some(from_ns >> shift), window: Some((from_ns, to_ns)), lines: HashMap::new() }
    }

    /// Adds a record where it is of a kind that is summed up.
    pub(crate) fn add(&mut self, row: &Row<'_>) {
        let Some(start_ns) = row.mono_ns else { return };
        let end_ns = row.end_ns().unwrap_or(start_ns);
        let pid = row.pid.unwrap_or(0);
        match &*row.src {
            s if src::is_call(s) && row.depth == 0 => self.call(pid, start_ns, end_ns),
            src::SCHED if &*row.op == "sched_switch" => {
                self.switch(pid, row.state.as_deref(), start_ns, end_ns, row.runq_ns.unwrap_or(0));
            }
            src::INGERO if &*row.op == "lost" => self.lost(pid, start_ns, row.count.unwrap_or(1)),
            _ => {}
        }
    }

    /// Adds an outermost call.
    pub(crate) fn call(&mut self, pid: u32, start_ns: u64, end_ns: u64) {
        self.put(pid, Kind::Calls, start_ns, end_ns, 1);
    }

    /// Adds a time off the CPU, at the end of which the thread waited `runq_ns` for one.
    pub(crate) fn switch(&mut self, pid: u32, state: Option<&str>, start_ns: u64, end_ns: u64, runq_ns: u64) {
        let state = state.and_then(|s| s.bytes().next());
        let dur_ns = end_ns.saturating_sub(start_ns);
        let runq_ns = if state == Some(b'R') { dur_ns } else { runq_ns.min(dur_ns) };
        if runq_ns > 0 {
            self.put(pid, Kind::CpuWait, end_ns - runq_ns, end_ns, 0);
        }
        if state == Some(b'D') {
            self.put(pid, Kind::Io, start_ns, end_ns - runq_ns, 0);
        }
    }

    /// Adds lost records.
    pub(crate) fn lost(&mut self, pid: u32, at_ns: u64, records: u64) {
        self.put(pid, Kind::Lost, at_ns, at_ns, records);
    }

    fn put(&mut self, pid: u32, kind: Kind, start_ns: u64, end_ns: u64, n: u64) {
        let (start_ns, end_ns, n) = match self.window {
            Some((from_ns, to_ns)) if end_ns < from_ns || start_ns > to_ns => return,
            // What began before is no beginning here.
            Some((from_ns, to_ns)) => {
                (start_ns.max(from_ns), end_ns.min(to_ns), if start_ns < from_ns { 0 } else { n })
            }
            None => (start_ns, end_ns, n),
        };
        let first = *self.first.get_or_insert(start_ns >> self.shift);
        // What began before the first record that was seen is clipped to it.
        let start_ns = start_ns.max(first << self.shift);
        let end_ns = end_ns.max(start_ns);
        while ((end_ns >> self.shift) - self.first.unwrap_or(0)) as usize >= MAX_SLICES {
            self.double();
        }
        let shift = self.shift;
        let base = self.first.unwrap_or(0);
        let (from, to) = (((start_ns >> shift) - base) as usize, ((end_ns >> shift) - base) as usize);
        let line = self.line(pid, kind);
        if line.len() < to + 2 {
            line.resize(to + 2, Cell::default());
        }
        line[from].n += n;
        if from == to {
            line[from].part_ns += end_ns - start_ns;
            return;
        }
        let slice_start = |at: usize| (at as u64 + base) << shift;
        line[from].part_ns += slice_start(from + 1) - start_ns;
        line[to].part_ns += end_ns - slice_start(to);
        line[from + 1].change += 1;
        line[to].change -= 1;
    }

    fn line(&mut self, pid: u32, kind: Kind) -> &mut Vec<Cell> {
        let full = self.lines.len() >= MAX_LINES && !self.lines.contains_key(&(pid, kind));
        self.lines.entry((if full { 0 } else { pid }, kind)).or_default()
    }

    /// Makes slices twice as wide.
    fn double(&mut self) {
        let Some(first) = self.first else { return };
        let (shift, width) = (self.shift, 1_u64 << self.shift);
        // Neighbours are those whose numbers differ in the last bit only.
        let odd = (first & 1) as usize;
        for line in self.lines.values_mut() {
            let mut wide = vec![Cell::default(); line.len().div_ceil(2) + 1];
            let mut covered = 0_i64;
            for (at, cell) in line.iter().enumerate() {
                covered += i64::from(cell.change);
                let to = &mut wide[(at + odd) / 2];
                to.n += cell.n;
                to.part_ns += cell.part_ns + covered as u64 * width;
            }
            *line = wide;
        }
        self.first = Some(first >> 1);
        self.shift = shift + 1;
    }

    /// Width of a slice, nanoseconds.
    pub(crate) fn width_ns(&self) -> u64 {
        1 << self.shift
    }

    /// Sums for each of the equal parts of [`from_ns`, `to_ns`], as far as slices tell: what lies in a slice is taken
    /// to lie in the middle of it. Of one process, or of all.
    pub(crate) fn sums(&self, from_ns: u64, to_ns: u64, parts: usize, pid: Option<u32>) -> Vec<Slice> {
        let mut sums = vec![Slice::default(); parts];
        let Some(first) = self.first else { return sums };
        let width = self.width_ns();
        let whole_ns = to_ns.saturating_sub(from_ns).max(1);
        for (&(_, kind), line) in self.lines.iter().filter(|((p, _), _)| pid.is_none_or(|pid| pid == *p)) {
            let mut covered = 0_i64;
            for (at, cell) in line.iter().enumerate() {
                covered += i64::from(cell.change);
                let mut middle_ns = ((at as u64 + first) << self.shift) + width / 2;
                if self.window.is_some() {
                    // Nothing in a window's slices lies outside of it, at its borders either.
                    middle_ns = middle_ns.clamp(from_ns, to_ns.saturating_sub(1).max(from_ns));
                }
                if middle_ns < from_ns || middle_ns >= to_ns {
                    continue;
                }
                let part = (u128::from(middle_ns - from_ns) * parts as u128 / u128::from(whole_ns)) as usize;
                let ns = cell.part_ns + covered as u64 * width;
                let sum = &mut sums[part.min(parts - 1)];
                match kind {
                    Kind::Calls => (sum.calls, sum.call_ns) = (sum.calls + cell.n, sum.call_ns + ns),
                    Kind::CpuWait => sum.cpu_wait_ns += ns,
                    Kind::Io => sum.io_ns += ns,
                    Kind::Lost => sum.lost += cell.n,
                }
            }
        }
        sums
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn grid(intervals: &[(u64, u64)]) -> Grid {
        let mut grid = Grid::default();
        for &(start, end) in intervals {
            grid.put(7, Kind::Calls, start, end, 1);
        }
        grid
    }

    #[test]
    fn nothing_is_lost_or_made_up_however_often_slices_double() {
        let width = 1_u64 << FIRST_SHIFT;
        let base = 5 * width + 17;
        // From 100 ns to minutes, so that slices double ten times on the way.
        let intervals: Vec<(u64, u64)> =
            (0..2000).map(|i| (base + i * 300_000_000, base + i * 300_000_000 + 100 + i * i * 3000)).collect();
        let grid = grid(&intervals);
        let total: u64 = intervals.iter().map(|(s, e)| e - s).sum();
        let sums = grid.sums(0, u64::MAX, 1, None);
        assert!(grid.shift > FIRST_SHIFT + 5);
        assert_eq!((sums[0].calls, sums[0].call_ns), (2000, total));
        assert_eq!(grid.sums(0, u64::MAX, 1, Some(8))[0], Slice::default());
    }

    #[test]
    fn an_interval_is_spread_over_what_it_covers() {
        let width = 1_u64 << FIRST_SHIFT;
        let grid = grid(&[(width / 2, 3 * width + 4)]);
        let sums: Vec<u64> = grid.sums(0, 4 * width, 4, Some(7)).iter().map(|s| s.call_ns).collect();
        assert_eq!(sums, [width / 2, width, width, 4]);
    }

    #[test]
    fn a_window_counts_what_lies_in_it() {
        let mut grid = Grid::of_window(1_000, 2_000);
        // Before, across the beginning, inside, across the end, after.
        for (start, end) in [(1, 900), (990, 1_010), (1_500, 1_501), (1_990, 2_500), (2_001, 2_002)] {
            grid.call(7, start, end);
        }
        let sums = grid.sums(1_000, 2_001, 1, None);
        assert_eq!((grid.width_ns(), sums[0].calls, sums[0].call_ns), (1, 2, 10 + 1 + 10));
        // However long it is.
        assert!(Grid::of_window(0, u64::MAX).width_ns() > 1 << 50);
    }

    #[test]
    fn a_first_slice_with_an_odd_number_doubles_in_place() {
        let width = 1_u64 << FIRST_SHIFT;
        let mut grid = grid(&[(3 * width, 4 * width)]);
        grid.double();
        let sums: Vec<u64> = grid.sums(2 * width, 6 * width, 2, None).iter().map(|s| s.call_ns).collect();
        assert_eq!(sums, [width, 0]);
    }
}
