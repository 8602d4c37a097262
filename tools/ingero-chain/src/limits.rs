//! Every threshold of the analysis, once: its value, the reason for it, and a test that fails without it.
//!
//! A threshold of the *definitions* (how long is silence) is a matter of judgement. A *bound* keeps memory or time in check; it
//! changes no sum, or says what becomes vaguer beyond it. `tests/scripts/mutate.py` walks this table: it pushes each value, one
//! at a time, and every push must be noticed by a test or a case.

// Definitions: what is lost.

/// Time between calls in which the GPU may have had work is silence from here on. A host that keeps its GPU fed makes its
/// calls some microseconds apart, and what it has enqueued ahead of the GPU is rarely more than a millisecond's work for each
/// pause of that length. It is a constant, so that no verdict depends on how many calls a step has.
/// Test: `each_microsecond_has_the_class_that_its_definition_gives`.
pub(crate) const SILENCE_NS: u64 = 1_000_000;
/// A counter of the GPU's use that is at least this high over a whole silence says that the GPU had work. Its readings agree
/// with CUPTI's within 5 points (docs/gpu.md).
/// Test: `a_counter_that_says_busy_all_the_time_takes_silence_back`.
pub(crate) const GPU_BUSY_PCT: f64 = 95.0;
/// An asynchronous copy from or to the host takes some microseconds to enqueue. A call that lasts so long has copied.
/// Test: `a_copy_that_takes_as_long_as_copying_blocks`.
pub(crate) const BLOCKING_COPY_NS: u64 = 100_000;
/// The slowest that a copy between pageable memory and the GPU usually is, in bytes for each microsecond (4 GB/s): what a
/// blocking copy takes beyond that, with work outstanding when it began, was waiting for that work.
/// Test: `what_a_blocking_copy_takes_beyond_the_copying_was_waiting`.
pub(crate) const COPY_BYTES_PER_US: u64 = 4_000;

// Definitions: what calls tell about the GPU.

/// A synchronise that returns so soon did not have to wait: on an H200 one without anything to wait for takes about 10 us.
/// Test: `synchronises_that_hardly_wait_make_a_loop_launch_bound`.
pub(crate) const SHORT_WAIT_NS: u64 = 50_000;
/// Waiting in a synchronise for so long is no overhead of the call: one without anything to wait for takes about 10 us.
/// Test: `a_synchronise_that_waits_tells_of_work`.
pub(crate) const GPU_WAIT_NS: u64 = 200_000;
/// The same where the scheduler tracer can't tell how much of it was waiting for a CPU: a turn of somebody else's is shorter.
/// Test: `a_synchronise_that_waits_tells_of_work`.
pub(crate) const GPU_WAIT_UNWATCHED_NS: u64 = 1_000_000;
/// A query, or another call of a thread that only asks, takes microseconds. One that lasts so long is no mere look.
/// Test: `a_look_that_lasts_is_a_call`.
pub(crate) const LOOK_NS: u64 = 1_000_000;
/// From so many operations outstanding on, the queue of a stream may be full: there is room for about a thousand.
/// Test: `a_launch_waits_for_room_only_where_the_queue_may_be_full`.
pub(crate) const FULL_FROM: u64 = 512;
/// Below this use, as its driver counts it, a GPU leaves no launch waiting for room in its queue.
/// Test: `a_launch_behind_a_full_queue_waits_for_the_gpu`.
pub(crate) const QUEUE_BUSY_PCT: f64 = 50.0;
/// How far the driver's counter was off where it was compared with CUPTI, as a share of the time (docs/gpu.md).
/// Test: `what_the_counter_says_beyond_the_account_is_launch_bound`.
pub(crate) const COUNTER_ERROR: f64 = 0.05;
/// How long after the time that it is about the counter is read, at most: read a second after a loop had begun that keeps an
/// H200 busy, it still said 1 %.
/// Test: `the_counter_speaks_of_the_second_before`.
pub(crate) const COUNTER_LAG_NS: u64 = 1_000_000_000;
/// One sample may be an odd one.
/// Test: `few_samples_say_nothing`.
pub(crate) const MIN_SAMPLES: u32 = 2;
/// Samples must cover so much of a loop to speak for all of it.
/// Test: `few_samples_say_nothing`.
pub(crate) const MIN_COVERED: f64 = 0.25;

/// A thread with so many of its samples on a CPU in calls that only ask whether something has happened spins. A Python server that polls
/// its socket has 54 % of them there, training and data loops on an H200 at most 0.1 %.
/// Test: `who_asks_in_a_quarter_of_the_samples_spins`.
pub(crate) const ASKING_SHARE: f64 = 0.25;
/// A share that rests on fewer samples is off by 30 points and more one time in twenty, and is not given as a number.
/// Test: `a_share_needs_ten_samples`.
pub(crate) const MIN_STACKS: u64 = 10;

// Definitions: phases.

/// After so many launches calls are warm, and so many warm launches that nobody waits for are a steady state: a step of a
/// large model has some thousand, a program that tries something a handful.
/// Test: `launches_that_nobody_waits_for_are_a_steady_state_in_the_end`.
pub(crate) const STEADY_LAUNCHES: u64 = 256;
/// After so many synchronising calls behind the first launch calls are warm: the first may be part of the warm-up.
/// Test: `slow_second_launch_and_late_allocations_are_cold_until_it_is_warm`.
pub(crate) const WARM_SYNCS: u64 = 2;
/// After so many warm launches that were waited for a process does the same over and over: two may be a trial and a retry.
/// Test: `steps_make_a_steady_state`.
pub(crate) const STEADY_STEPS: u64 = 3;
/// That is so only if it goes on for so many of them. Seven batches that all had to be waited for first are no steady state,
/// and the wait for them is no start-up.
/// Test: `steps_make_a_steady_state`.
pub(crate) const LASTING_STEPS: u64 = 32;
/// The same in warm launches: some steps of a small network.
/// Test: `launches_that_nobody_waits_for_are_a_steady_state_in_the_end`.
pub(crate) const LASTING_LAUNCHES: u64 = 1024;
/// A process without a launch that has made so many calls lives on copies.
/// Test: `a_process_that_only_copies_begins_with_its_second_call`.
pub(crate) const COPIES_ONLY: u64 = 1024;
/// So many warm copies, launches and synchronises are more than a program's first steps.
/// Test: `so_much_warm_work_is_more_than_first_steps`.
pub(crate) const REPEATED_WORK: u64 = 16;
/// While warming up, an allocation or free so long is cold: usually it takes less than one.
/// Test: `slow_second_launch_and_late_allocations_are_cold_until_it_is_warm`.
pub(crate) const COLD_ALLOC_NS: u64 = 5_000_000;
/// While warming up, another call so long is cold: code is loaded on the way, which took 5 ms to 3 s on real traces.
/// Test: `slow_second_launch_and_late_allocations_are_cold_until_it_is_warm`.
pub(crate) const COLD_CALL_NS: u64 = 100_000_000;
/// The first `cuInit`, or the first context, of a process takes milliseconds; again, microseconds.
/// Test: `a_call_that_takes_as_long_as_initialising_is_the_first`.
pub(crate) const INIT_NS: u64 = 1_000_000;
/// A launch so short loaded nothing: one takes about 4 us, loading code milliseconds.
/// Test: `the_loop_begins_behind_the_last_cold_launch`.
pub(crate) const WARM_LAUNCH_NS: u64 = 1_000_000;
/// A pause before the steady state is part of the start-up if it is so many times longer than any after it: an order of
/// magnitude is no variation of the same thing.
/// Test: `a_pause_unlike_any_later_one_is_part_of_the_start_up`.
pub(crate) const START_UP_FACTOR: u64 = 10;
/// There are no more than so many of its like (an import and a compilation): more would be a loop of their own.
/// Test: `a_pause_unlike_any_later_one_is_part_of_the_start_up`.
pub(crate) const START_UP_PAUSES: usize = 2;

// Definitions: causes.

/// While CPUs are free, nobody who may run waits so long for others to have their turn: a turn is some milliseconds
/// (`base_slice_ns`: 3 ms on eight CPUs and more), and an idle CPU takes waiting threads over.
/// Test: `a_long_wait_while_cpus_are_free_is_the_quota`.
pub(crate) const LONGEST_TURN_NS: u64 = 10_000_000;
/// Who sleeps again so soon had nothing to do in between.
/// Test: `the_engine_agrees_with_the_reference`.
pub(crate) const STRAIGHT_BACK_NS: u64 = 1_000_000;
/// Below this share of busy CPUs, one is free for whoever may run.
/// Test: `quota_counters_speak_for_their_own_interval_and_process`.
pub(crate) const CPUS_FREE_BELOW_PCT: f64 = 90.0;
/// Steal below this is the daily noise of a virtual machine.
/// Test: `steal_is_a_part_of_busy_time`.
pub(crate) const STEAL_FROM_PCT: f64 = 5.0;
/// The kernel may mark one victim twice within one kill, in this time: before the process is first seen, too, and after its
/// exit.
/// Test: `one_kill_is_told_once_and_unknown_memory_stays_unknown`.
pub(crate) const SAME_KILL_NS: u64 = 1_000_000_000;

// Definitions: findings.

/// Lost share of the loop from which on a finding is high: a fifth of a GPU.
/// Test: `severity_goes_by_the_share_of_the_loop`.
pub(crate) const HIGH_SHARE: f64 = 0.20;
/// Lost share from which on it is medium: what the variation of runs no longer hides.
/// Test: `severity_goes_by_the_share_of_the_loop`.
pub(crate) const MEDIUM_SHARE: f64 = 0.05;
/// Lost share from which on it is reported at all: the tracer itself takes as much.
/// Test: `severity_goes_by_the_share_of_the_loop`.
pub(crate) const LOW_SHARE: f64 = 0.01;
/// Where one kind of call has more of the lost time than this, it tells the story alone, without a total.
/// Test: `a_total_is_told_of_where_no_kind_of_call_has_it_all`.
pub(crate) const ONE_KIND_SHARE: f64 = 0.95;
/// A slow call lasts so many times the median of its group…
/// Test: `only_calls_far_beyond_the_median_are_slow`.
pub(crate) const SLOW_FACTOR: u64 = 3;
/// …and so much longer than it: less is an interrupt or a page fault.
/// Test: `only_calls_far_beyond_the_median_are_slow`.
pub(crate) const SLOW_NS: u64 = 100_000;
/// A median of fewer calls says nothing.
/// Test: `only_calls_far_beyond_the_median_are_slow`.
pub(crate) const MIN_CALLS: u64 = 5;
/// A 99th percentile of fewer values would be the largest of them.
/// Test: `the_99th_percentile_needs_a_hundred`.
pub(crate) const MIN_CALLS_P99: u64 = 100;
/// Fewer occurrences make no period.
/// Test: `regular_or_not`.
pub(crate) const MIN_OCCURRENCES: usize = 5;
/// Of the time lost, so much must lie in occurrences that are close to one period apart, and so much decides which ones are
/// looked at.
/// Test: `what_takes_little_time_hides_no_period`.
pub(crate) const PERIOD_SHARE: f64 = 0.9;
/// Without samples, so many waits for the GPU right after its work was launched have to tell that a loop is bound by its
/// launches…
/// Test: `synchronises_that_hardly_wait_make_a_loop_launch_bound`.
pub(crate) const MIN_WAITS: u64 = 8;
/// …so large a part of them by being over at once…
/// Test: `synchronises_that_hardly_wait_make_a_loop_launch_bound`.
pub(crate) const SHORT_SHARE: f64 = 0.9;
/// …and the loop has to consist of launches: so much of it in them and between them.
/// Test: `synchronises_that_hardly_wait_make_a_loop_launch_bound`.
pub(crate) const MIN_LAUNCHING: f64 = 0.5;
/// A stall lasts at least so long: every stream is cut off somewhere, and steps of a second are not rare.
/// Test: `a_stall_lasts`.
pub(crate) const STALL_NS: u64 = 2_000_000_000;
/// It lasts so many times the longest wait between calls, or the longest call of its kind, before.
/// Test: `a_stall_lasts_longer_than_anything_before`.
pub(crate) const STALL_FACTOR: u64 = 3;
/// A call that hangs is worth a remark from here on: a short run may end before it has hung for long.
/// Test: `a_hang_at_the_end_of_a_short_run_is_a_remark`.
pub(crate) const HANG_NS: u64 = 100_000_000;
/// A tracer that stops tells of the calls that are still open, then takes its probes away and ends: 80 to 400 ms later,
/// measured, and more where there are many.
/// Test: `a_call_that_is_not_open_when_the_tracer_stops_hangs_no_more`.
pub(crate) const STOPPING_NS: u64 = 2_000_000_000;

// Definitions: what is told.

/// A cause with a smaller share of the lost time is not named as one: the causes of a tenth cannot be the cure.
/// Test: `a_cause_is_named_from_a_tenth_on`.
pub(crate) const NAMED_SHARE: f64 = 0.10;
/// A smaller share is not told of by itself: the tracer itself takes as much.
/// Test: `causes_are_told_one_by_one_down_to_a_hundredth`.
pub(crate) const SHOWN_SHARE: f64 = 0.01;
/// A smaller share of the lost time disappears in rounding: a stretch of silence of that size does not make the whole uncertain.
/// Test: `silence_that_rounds_to_nothing_makes_nothing_uncertain`.
pub(crate) const ROUNDS_TO_NOTHING: f64 = 0.005;
/// If more of a loop cannot be judged, there is no verdict: that it is fed would be said of the smaller part.
/// Test: `a_verdict_needs_half_of_the_loop`.
pub(crate) const MOST_NOT_JUDGED: f64 = 0.5;
/// Where less of the lost time was watched, that is why its cause is unknown.
/// Test: `what_nobody_watched_has_no_cause`.
pub(crate) const MOSTLY_WATCHED: f64 = 0.5;
/// Among those who had the CPU, one with a smaller share of it is not worth keeping away: kernel threads come by everywhere.
/// Test: `who_came_by_is_no_rival`.
pub(crate) const RIVAL_SHARE: f64 = 0.05;
/// Steal below this is not told of, in percent: it rounds to nothing.
/// Test: `the_machine_is_told_of_as_it_was`.
pub(crate) const STEAL_TOLD_PCT: f64 = 1.0;
/// Before a kill for memory, the machine is looked at for so long: two samples at one a second.
/// Test: `the_machine_is_told_of_as_it_was`.
pub(crate) const BEFORE_KILL_NS: u64 = 2_000_000_000;

// Definitions: the stream.

/// A stretch is judged so long after its end: records may be late (ingero-join's window, and what its inputs are late among
/// themselves), a sample of the machine covers the second before it and what it says of the GPU one more, and when a thread
/// left its CPU is told of when it comes back (`cpu_timeline`).
/// Test: `a_stretch_is_judged_when_what_is_late_has_come`.
pub(crate) const SETTLE_NS: u64 = 2_500_000_000;
/// A thread that has been silent so long is not waited for: ingero-cuda tells of a call that hangs by then (`--stuck`).
/// Test: `a_silent_thread_is_waited_for_so_long`.
pub(crate) const SILENT_NS: u64 = 10_000_000_000;
/// No machine has been up for 146 years.
/// Test: `a_record_from_the_end_of_time_is_none`.
pub(crate) const ABSURD_NS: u64 = 1 << 62;

// Bounds.

/// Old intervals are dropped, and lost time settled, once in so many records.
/// Test: `what_can_be_counted_is_counted_now_and_then`.
pub(crate) const HOUSEKEEPING: u64 = 16_384;
/// Pieces of the recent past of a process that are kept one by one. Of older ones in which no time was lost only sums are, of
/// which a late call takes its part.
/// Test: `older_pieces_in_which_no_time_was_lost_are_summed_up`.
pub(crate) const MAX_FINE: usize = 8_192;
/// Older ones: runs of pieces, and pieces in which time was lost. Beyond, the oldest leave although a late call may still come.
/// Test: `more_than_can_be_kept_leaves_early`.
pub(crate) const MAX_PIECES: usize = 65_536;
/// Calls in one run.
/// Test: `older_pieces_in_which_no_time_was_lost_are_summed_up`.
pub(crate) const MAX_RUN: u32 = 256;
/// Threads whose calls are told apart; those beyond are not waited for.
/// Test: `threads_beyond_the_bound_are_not_waited_for`.
pub(crate) const MAX_CALLERS: usize = 4_096;
/// Calls remembered of one idle interval: of more, the time counts as that of the thread's own code.
/// Test: `calls_of_an_idle_interval_beyond_the_bound_are_the_threads_own_time`.
pub(crate) const MAX_CALLS_IN_IDLE: usize = 256;
/// Lost intervals that wait for the next work, which gives them their name; beyond, the call that ended each one does.
/// Test: `intervals_that_wait_too_long_for_work_are_named_by_their_own_calls`.
pub(crate) const MAX_UNNAMED: usize = 4_096;
/// What is kept of the first minutes of a process until it is known when its loop began; beyond, it began with the first warm
/// launch.
/// Test: `a_start_that_is_never_over_is_counted_in_the_end`.
pub(crate) const MAX_EARLY: usize = 65_536;
/// The longest occurrences of a finding that are kept one by one…
/// Test: `whatever_is_dropped_sums_stay_and_the_first_and_the_longest_are_kept`.
pub(crate) const MAX_LONGEST: usize = 256;
/// …and the latest…
/// Test: `whatever_is_dropped_sums_stay_and_the_first_and_the_longest_are_kept`.
pub(crate) const MAX_LATEST: usize = 256;
/// …and the first: where it began.
/// Test: `whatever_is_dropped_sums_stay_and_the_first_and_the_longest_are_kept`.
pub(crate) const MAX_FIRST: usize = 16;
/// Slices of the recording in which lost time is summed up for each finding.
/// Test: `whatever_is_dropped_sums_stay_and_the_first_and_the_longest_are_kept`.
pub(crate) const MAX_SLICES: usize = 100;
/// The first length of a slice.
/// Test: `an_interval_lies_in_all_slices_that_it_touches`.
pub(crate) const FIRST_SLICE_NS: u64 = 10_000_000;
/// Kinds of calls before which the lost time of one process is told apart; the rest is one kind.
/// Test: `kinds_of_calls_beyond_the_bound_are_one`.
pub(crate) const MAX_KINDS: usize = 512;
/// Different waits kept in a breakdown, by what they were in and who ended them; the smallest beyond are left out.
/// Test: `so_many_waits_are_told_apart`.
pub(crate) const MAX_WAITS: usize = 64;
/// Different stacks kept in a breakdown, by cause and party; the smallest beyond count as not known.
/// Test: `so_many_stacks_are_told_apart`.
pub(crate) const MAX_PLACES: usize = 256;
/// Functions that are told apart in all stacks, and stacks; others are not known. A large training job shows some thousands.
/// Test: `so_many_stacks_and_samples_are_kept`.
pub(crate) const MAX_FRAMES: usize = 65_536;
/// See [`MAX_FRAMES`].
/// Test: `so_many_stacks_and_samples_are_kept`.
pub(crate) const MAX_STACKS: usize = 65_536;
/// Frames of one stack: the innermost ones.
/// Test: `so_many_stacks_and_samples_are_kept`.
pub(crate) const MAX_DEPTH: usize = 256;
/// Stack samples that are kept until paths have been read from them; the oldest of a thread go.
/// Test: `so_many_stacks_and_samples_are_kept`.
pub(crate) const MAX_STACK_SAMPLES: usize = 262_144;
/// Functions listed for one cause.
/// Test: `so_many_functions_are_listed`.
pub(crate) const MAX_LISTED_FUNCTIONS: usize = 10;
/// Functions that an overview tells of for one cause.
/// Test: `where_it_was_is_told_with_its_share`.
pub(crate) const MAX_WHERE: usize = 3;
/// Different parties kept for each cause; the smallest beyond become nameless, their time stays.
/// Test: `a_breakdown_adds_up_however_many_parties_there_are`.
pub(crate) const MAX_PARTIES: usize = 32;
/// Hand-overs followed from one instant back to another. Real queues need two or three.
/// Test: `hand_overs_are_followed_so_far_and_no_further`.
pub(crate) const MAX_HOPS: u32 = 64;
/// Streams told apart; beyond, only waiting for the whole device proves anything.
/// Test: `too_many_streams_prove_nothing_until_the_device_is_waited_for`.
pub(crate) const MAX_STREAMS: usize = 256;
/// Events that are told apart: an application takes them from a pool. Beyond, all are forgotten, and prove nothing.
/// Test: `too_many_events_prove_nothing`.
pub(crate) const MAX_EVENTS: usize = 4_096;
/// Kernel functions that are told apart; the others are never cold.
/// Test: `kernel_functions_beyond_the_bound_are_warm`.
pub(crate) const MAX_FUNCS: usize = 65_536;
/// Operations whose entries are counted apart.
/// Test: `names_beyond_the_bounds_are_not_told_apart`.
pub(crate) const MAX_ENTRY_OPS: usize = 512;
/// Threads that are known to work; with more of them, all are thought to.
/// Test: `looks_count_as_calls_where_too_many_threads_work`.
pub(crate) const MAX_WORKERS: usize = 4_096;
/// Open calls that are remembered.
/// Test: `names_beyond_the_bounds_are_not_told_apart`.
pub(crate) const MAX_OPEN: usize = 1_024;
/// Threads whose names are remembered, and operations that are told apart.
/// Test: `names_beyond_the_bounds_are_not_told_apart`.
pub(crate) const MAX_NAMES: usize = 4_096;
/// Slow calls kept one by one in each group until the median is known well…
/// Test: `whatever_is_folded_slow_calls_keep_their_sums`.
pub(crate) const MAX_CANDIDATES: usize = 1_024;
/// …of which so many of the youngest in any case: it may not be known yet what was lost meanwhile.
/// Test: `whatever_is_folded_slow_calls_keep_their_sums`.
pub(crate) const MAX_YOUNG: usize = 256;
/// Groups in one process; sizes and directions aren't told apart beyond.
/// Test: `groups_beyond_the_bound_are_by_operation_only`.
pub(crate) const MAX_GROUPS: usize = 512;
/// Durations kept as they are; of more, a histogram is.
/// Test: `of_more_than_4096_a_histogram_is_kept`.
pub(crate) const MAX_EXACT: usize = 4_096;
/// Occurrences listed for one finding.
/// Test: `a_finding_lists_so_many_occurrences`.
pub(crate) const MAX_OCCURRENCES: usize = 1_000;
/// Operations listed for one class of host calls.
/// Test: `host_calls_list_so_many_operations`.
pub(crate) const MAX_LISTED_OPS: usize = 16;
/// Processes whose times off the CPU are summed up.
/// Test: `processes_that_have_ended_are_forgotten`.
pub(crate) const MAX_STATS: usize = 100_000;
/// Processes with CUDA calls that are kept, ended ones included.
/// Test: `processes_that_have_ended_are_forgotten`.
pub(crate) const MAX_CUDA: usize = 1_024;
/// Samples of the machine that are kept: about 4.5 hours at one a second.
/// Test: `old_samples_are_dropped`.
pub(crate) const MAX_SAMPLES: usize = 16_384;
/// Kills for memory that are remembered; the oldest go.
/// Test: `old_kills_are_dropped`.
pub(crate) const MAX_KILLS: usize = 256;
/// Hosts that the report names.
/// Test: `so_many_hosts_are_named`.
pub(crate) const MAX_HOSTS: usize = 8;
/// Causes that an overview tells of one by one.
/// Test: `causes_are_told_one_by_one_down_to_a_hundredth`.
pub(crate) const MAX_CAUSES: usize = 5;
/// Pieces of advice in an overview.
/// Test: `so_much_is_told_and_no_more`.
pub(crate) const MAX_ADVICE: usize = 5;
/// Those named for one cause in a finding's evidence.
/// Test: `so_much_is_told_and_no_more`.
pub(crate) const MAX_WHO: usize = 4;
/// Those named in a sentence.
/// Test: `so_much_is_told_and_no_more`.
pub(crate) const MAX_NAMED: usize = 2;
/// Operations named in a sentence.
/// Test: `so_much_is_told_and_no_more`.
pub(crate) const MAX_NAMED_OPS: usize = 3;
/// Victims named in one finding.
/// Test: `the_machine_is_told_of_as_it_was`.
pub(crate) const MAX_KILLED: usize = 4;
/// Workers of one finding whose requests to block devices are told of.
/// Test: `so_many_workers_requests_are_told_of`.
pub(crate) const MAX_REQUESTERS: usize = 2;
