//! Where in the recording a process waited: its life in equal cells, each with the share of it that was lost.
//!
//! ```text
//!   start-up            loop                          shutdown
//!   ·  ·  ·  ·  ·  ·  | 0.9 1.0 0.2 0.0 0.0 1.0 0.7 | ·  ·
//! ```

use crate::report::model::{AccountLine, GridLine};

/// One cell of a strip.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Cell {
    /// Before or after the loop, where nothing is lost.
    Outside,
    /// Of the loop, with the share of it that was lost, 0 to 1.
    Loop(f64),
}

/// The life of a process in `cells` cells.
pub(crate) fn cells<'a>(account: &AccountLine, grids: impl Iterator<Item = &'a GridLine>, cells: usize) -> Vec<Cell> {
    let cell_ns = account.observed_ns as f64 / cells.max(1) as f64;
    let mut lost_ns = vec![0.0_f64; cells];
    for grid in grids {
        for (i, &ns) in grid.lost_ns.iter().enumerate().filter(|&(_, &ns)| ns > 0) {
            let from_ns = grid.mono_ns.saturating_add(grid.slice_ns.saturating_mul(i as u64));
            let from = from_ns.saturating_sub(account.mono_ns) as f64 / cell_ns;
            spread(&mut lost_ns, from, grid.slice_ns as f64 / cell_ns, ns as f64);
        }
    }
    let loop_from_ns = account.loop_mono_ns.saturating_sub(account.mono_ns) as f64;
    let loop_to_ns = loop_from_ns + account.loop_ns as f64;
    let cell = |(i, lost_ns): (usize, f64)| {
        // The time of the loop in this cell, of which a share is lost.
        let (from_ns, to_ns) = (i as f64 * cell_ns, (i + 1) as f64 * cell_ns);
        let loop_ns = to_ns.min(loop_to_ns) - from_ns.max(loop_from_ns);
        if loop_ns < cell_ns / 2.0 { Cell::Outside } else { Cell::Loop((lost_ns / loop_ns).min(1.0)) }
    };
    lost_ns.into_iter().enumerate().map(cell).collect()
}

/// Adds `ns` to the cells from `from` on over `len` cells, to each by how much of it is covered.
fn spread(cells: &mut [f64], from: f64, len: f64, ns: f64) {
    let to = from + len;
    let mut at = from;
    while at < to && (at as usize) < cells.len() {
        let next = (at.floor() + 1.0).min(to);
        cells[at as usize] += ns * (next - at) / len;
        at = next;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::class::Classes;
    use crate::report::model::GpuLine;

    fn account(observed_ns: u64, loop_mono_ns: u64, loop_ns: u64) -> AccountLine {
        AccountLine {
            src: "chain",
            op: "account",
            mono_ns: 1_000,
            ts: None,
            pid: 1,
            comm: "train".into(),
            script: "".into(),
            observed_ns,
            end_ts: None,
            loop_mono_ns,
            loop_ns,
            lost_ns: 0,
            lost_share: 0.0,
            classes: Classes::default(),
            gpu: GpuLine::default(),
            steps: None,
            so_far: false,
        }
    }

    #[test]
    fn waits_lie_where_they_were_and_the_loop_is_told_from_the_rest() {
        let grid = GridLine { mono_ns: 1_200, slice_ns: 100, lost_ns: vec![100, 0, 50] };
        let cells = cells(&account(1_000, 1_200, 600), [&grid].into_iter(), 10);
        use Cell::{Loop, Outside};
        assert_eq!(
            cells,
            [Outside, Outside, Loop(1.0), Loop(0.0), Loop(0.5), Loop(0.0), Loop(0.0), Loop(0.0), Outside, Outside]
        );
    }

    #[test]
    fn coarse_slices_are_spread_and_fine_ones_are_summed() {
        let coarse = GridLine { mono_ns: 1_000, slice_ns: 1_000, lost_ns: vec![500] };
        let fine = GridLine { mono_ns: 1_000, slice_ns: 10, lost_ns: vec![10; 10] };
        let cells = cells(&account(400, 1_000, 400), [&coarse, &fine].into_iter(), 4);
        assert_eq!(cells, [Cell::Loop(1.0), Cell::Loop(0.5), Cell::Loop(0.5), Cell::Loop(0.5)]);
    }

    #[test]
    fn a_grid_that_does_not_fit_the_account_draws_nothing_and_ends() {
        let far = GridLine { mono_ns: u64::MAX - 5, slice_ns: u64::MAX / 2, lost_ns: vec![1, 2, 3] };
        let cells = cells(&account(0, 0, 0), [&far].into_iter(), 3);
        assert_eq!(cells.len(), 3);
    }
}
