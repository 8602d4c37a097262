use super::*;
use crate::testing::{MS, US};

fn call(tid: u32, doing: Doing) -> InCall {
    InCall { tid, op: 0, doing }
}

fn add(timeline: &mut Timeline, tid: u32, start_us: u64, end_us: u64, doing: Doing, drained: bool) {
    timeline.add(start_us * US, end_us * US, call(tid, doing), drained);
}

/// Everything, in the order in which it leaves: start and end in microseconds, and class.
fn drain(timeline: &mut Timeline) -> Vec<(u64, u64, Class)> {
    let items = std::iter::from_fn(|| timeline.pop(u64::MAX));
    let piece = |item| match item {
        Item::Piece(piece) => (piece.start_ns / US, piece.end_ns / US, piece.class()),
        Item::Run(run) => panic!("{run:?}"),
    };
    items.map(piece).collect()
}

/// The example at the head of this file.
#[test]
fn a_late_call_changes_what_lay_inside_it() {
    use Class::{Between, Enqueue, Memory};
    let mut timeline = Timeline::default();
    add(&mut timeline, 1, 0, 2, Doing::Enqueue, false);
    add(&mut timeline, 1, 23, 25, Doing::Enqueue, false);
    add(&mut timeline, 2, 5, 35, Doing::Memory, false);
    let pieces = [(0, 2, Enqueue), (2, 5, Between), (5, 23, Memory), (23, 25, Enqueue), (25, 35, Memory)];
    assert_eq!(drain(&mut timeline), pieces);
}

#[test]
fn of_calls_at_the_same_time_the_one_that_feeds_the_gpu_decides() {
    use Class::{Copy, Enqueue, GpuWait, Idle, Load, Memory, OtherCall};
    let at_once = |one: Doing, other: Doing, drained: bool| {
        let mut timeline = Timeline::default();
        add(&mut timeline, 1, 0, 10, one, drained);
        add(&mut timeline, 2, 0, 10, other, drained);
        drain(&mut timeline)[0].2
    };
    let by_rank = [
        (Doing::Other, OtherCall),
        (Doing::Memory, Memory),
        (Doing::Load, Load),
        (Doing::Wait, GpuWait),
        (Doing::WaitToCopy, GpuWait),
        (Doing::ColdLaunch, Load),
        (Doing::Copy, Copy),
        (Doing::Upload, Copy),
        (Doing::Enqueue, Enqueue),
    ];
    for (at, &(higher, class)) in by_rank.iter().enumerate() {
        for &(lower, _) in &by_rank[..=at] {
            assert_eq!(
                (at_once(higher, lower, false), at_once(lower, higher, false)),
                (class, class),
                "{higher:?} {lower:?}"
            );
            let idle = if higher.feeds() { class } else { Idle };
            assert_eq!(
                (at_once(higher, lower, true), at_once(lower, higher, true)),
                (idle, idle),
                "{higher:?} {lower:?}"
            );
        }
    }
}

#[test]
fn time_between_calls_is_silence_from_a_millisecond_on_unless_the_gpu_is_known() {
    let class = |gap_us: u64, drained: bool, busy: bool| {
        let mut timeline = Timeline::default();
        add(&mut timeline, 1, 0, 10, Doing::Enqueue, false);
        timeline.extend_to((10 + gap_us) * US, drained);
        if busy {
            timeline.gpu_was_busy((10 + gap_us) * US, false);
        }
        drain(&mut timeline)[1].2
    };
    assert_eq!((class(1000, false, false), class(999, false, false)), (Class::Silence, Class::Between));
    assert_eq!((class(1, true, false), class(5000, true, false)), (Class::Idle, Class::Idle));
    assert_eq!(class(5000, false, true), Class::Between);
}

/// What a wait tells of the GPU holds back to when it was last given work, not further, and not for what came meanwhile.
#[test]
fn a_call_that_shows_work_tells_of_the_time_since_the_last_was_enqueued() {
    let told = |contradicted| {
        let mut timeline = Timeline::default();
        add(&mut timeline, 1, 0, 10, Doing::Enqueue, false);
        add(&mut timeline, 1, 3000, 3010, Doing::Enqueue, false);
        add(&mut timeline, 1, 5000, 5010, Doing::Other, contradicted);
        timeline.extend_to(8000 * US, contradicted);
        // Another thread gives it work after the wait has begun, and before it is over.
        add(&mut timeline, 2, 9000, 9010, Doing::Enqueue, false);
        timeline.gpu_was_busy(8000 * US, contradicted);
        timeline.extend_to(12_000 * US, false);
        let all = drain(&mut timeline).into_iter().filter(|(start_us, end_us, _)| end_us - start_us > 100);
        all.map(|(start_us, _, class)| (start_us, class)).collect::<Vec<_>>()
    };
    use Class::{Between, Silence};
    assert_eq!(told(false), [(10, Silence), (3010, Between), (5010, Between), (9010, Silence)]);
    // There was work that is not on record, nobody knows since when.
    assert_eq!(told(true), [(10, Silence), (3010, Silence), (5010, Silence), (8000, Silence), (9010, Silence)]);
}

#[test]
fn pieces_wait_for_threads_that_may_be_in_a_call() {
    let mut timeline = Timeline::default();
    add(&mut timeline, 1, 0, 10, Doing::Enqueue, false);
    add(&mut timeline, 2, 20, 30, Doing::Enqueue, false);
    add(&mut timeline, 1, 50, 60, Doing::Enqueue, false);
    let known = |now_ms: u64, dead: u32| timeline.known_ns(now_ms * MS, 10 * MS, |tid| tid == dead);
    assert_eq!((known(1, 0), known(1, 2)), (20 * US, 50 * US), "thread 2 may be in a call since 30 us");
    assert_eq!(known(20, 0), u64::MAX, "who is silent for so long is not waited for");
    assert!(timeline.pop(20 * US).is_some() && timeline.pop(20 * US).is_some() && timeline.pop(20 * US).is_none());
}

#[test]
fn a_call_that_hangs_covers_what_follows() {
    let mut timeline = Timeline::default();
    add(&mut timeline, 1, 0, 10, Doing::Enqueue, false);
    timeline.hangs(call(2, Doing::Wait), 5 * US, 15 * US);
    add(&mut timeline, 1, 5000, 5010, Doing::Enqueue, true);
    timeline.returned(2);
    add(&mut timeline, 1, 9000, 9010, Doing::Enqueue, false);
    let classes: Vec<Class> = drain(&mut timeline).into_iter().map(|(.., class)| class).collect();
    assert_eq!(classes, [Class::Enqueue, Class::GpuWait, Class::Enqueue, Class::Silence, Class::Enqueue]);
}

#[test]
fn nothing_is_judged_from_a_call_without_an_end_to_the_next_with_one() {
    let mut timeline = Timeline::default();
    add(&mut timeline, 1, 0, 10, Doing::Enqueue, false);
    timeline.lose_sight(20 * US);
    add(&mut timeline, 1, 5000, 5010, Doing::Enqueue, true);
    use Class::{Enqueue, NotJudged};
    assert_eq!(
        drain(&mut timeline),
        [(0, 10, Enqueue), (10, 20, NotJudged), (20, 5000, NotJudged), (5000, 5010, Enqueue)]
    );
}

/// Launches of 10 us, each 20 us: two pieces for each.
fn long(n: u64) -> Timeline {
    let mut timeline = Timeline::default();
    (0..n).for_each(|n| add(&mut timeline, 1, 20 * n, 20 * n + 10, Doing::Enqueue, false));
    timeline
}

#[test]
fn older_pieces_in_which_no_time_was_lost_are_summed_up() {
    let mut timeline = long(10_000);
    assert_eq!((timeline.fine.len(), timeline.oldest_ns()), (8_192, Some(0)));
    let runs: Vec<Run> = timeline
        .aged
        .iter()
        .map(|item| match item {
            Item::Run(run) => *run,
            Item::Piece(piece) => panic!("{piece:?}"),
        })
        .collect();
    // 19,999 pieces, of which 11,807 are old; the last call of a run may be followed by the time after it.
    assert_eq!((runs[0].calls, runs.len()), (256, (11_807_u64 / 2).div_ceil(256) as usize));
    assert!(runs.windows(2).all(|pair| pair[0].end_ns == pair[1].start_ns));
    // A late call takes its part of each class, of what is old as of what is young.
    let half_ns = 10_000 * 20 * US / 2;
    timeline.add(0, half_ns, call(2, Doing::Memory), false);
    let mut sums = Classes::default();
    while let Some(item) = timeline.pop(u64::MAX) {
        match item {
            Item::Run(run) => sums.add_all(&run.classes),
            Item::Piece(piece) => sums.add(piece.class(), piece.len_ns()),
        }
    }
    assert_eq!(sums.total_ns(), (20 * 9_999 + 10) * US);
    assert!(sums.get(Class::Memory).abs_diff(half_ns / 2) < MS, "{sums:?}");
    assert_eq!(sums.get(Class::Enqueue), 100_000 * US);
}

/// Also in a run each side of a split has its length to the nanosecond.
#[test]
fn a_run_is_split_in_proportion() {
    let mut timeline = long(5_000);
    let Some(Item::Run(run)) = timeline.pop(u64::MAX) else { panic!() };
    for at_ns in [1, 7 * US + 3, 2 * MS + 1] {
        let (before, after) = run.split(at_ns);
        assert_eq!((before.classes.total_ns(), before.end_ns - before.start_ns), (at_ns, at_ns));
        assert_eq!(after.classes.total_ns(), after.end_ns - at_ns);
        let enqueue = before.classes.get(Class::Enqueue);
        assert!(enqueue.abs_diff(at_ns / 2) <= 1 + at_ns / 500, "{enqueue} {at_ns}");
    }
}

/// Each of these intervals is idle, and kept one by one.
#[test]
fn more_than_can_be_kept_leaves_early() {
    let mut timeline = Timeline::default();
    let steps = 40_000;
    (0..steps).for_each(|n| add(&mut timeline, 1, 20 * n, 20 * n + 10, Doing::Wait, true));
    assert_eq!(timeline.aged.len(), 2 * steps as usize - 1 - 8_192);
    let early = std::iter::from_fn(|| timeline.pop(0)).count();
    assert_eq!((early, timeline.aged.len()), (2 * steps as usize - 1 - 8_192 - 65_536, 65_536));
}

#[test]
fn threads_beyond_the_bound_are_not_waited_for() {
    let mut timeline = Timeline::default();
    for tid in 0..5_000 {
        add(&mut timeline, tid, u64::from(tid), u64::from(tid) + 1, Doing::Enqueue, false);
    }
    assert_eq!(timeline.callers.len(), 4_096);
    (0..5_000).for_each(|tid| timeline.hangs(call(tid, Doing::Wait), 0, 1));
    assert_eq!(timeline.hanging.len(), 4_096);
}

#[test]
fn a_call_that_takes_no_time_divides_nothing() {
    let mut timeline = Timeline::default();
    add(&mut timeline, 1, 0, 100, Doing::Memory, false);
    add(&mut timeline, 2, 50, 50, Doing::Enqueue, false);
    assert_eq!(drain(&mut timeline), [(0, 100, Class::Memory)]);
}
