-- The tables that run_sql reads. Times are nanoseconds; mono_ns is the start on CLOCK_MONOTONIC, as in the recording;
-- an absent value is NULL, never 0. id is the record's place in the stream, one count over all tables, so ORDER BY id is
-- the order of ends. Records of other programs are counted in totals only. Not in the tables: launch geometry, pointers,
-- symbol variants, the tasks in a call's host object; the recording itself has them.

-- CUDA runtime, driver and NCCL calls. dur_ns is the time of the call on the host: for an asynchronous call the time to
-- enqueue it. depth 0 = outermost; calls inside others have more. off_ns to pages are what the calling thread went
-- through meanwhile (NULL where the recording was not joined); watched 0 = its zeros are no evidence.
CREATE TABLE calls (
    id INTEGER PRIMARY KEY, mono_ns INTEGER, dur_ns INTEGER, pid INTEGER, tid INTEGER, comm TEXT,
    src TEXT, op TEXT, depth INTEGER, ret INTEGER, bytes INTEGER, dir TEXT, stream TEXT, func TEXT, count INTEGER,
    off_ns INTEGER, preempted_ns INTEGER, runq_ns INTEGER, sleep_ns INTEGER, io_ns INTEGER, unknown_ns INTEGER,
    switches INTEGER, pages INTEGER, watched INTEGER, open INTEGER, late INTEGER
);

-- One row for each time a watched thread was off the CPU. state: R = preempted, S = sleeping, D = uninterruptible;
-- runq_ns is the part spent runnable and waiting for a CPU; by took the CPU when the thread left, prev ran there just
-- before it came back, waker woke it.
CREATE TABLE switches (
    id INTEGER PRIMARY KEY, mono_ns INTEGER, dur_ns INTEGER, pid INTEGER, tid INTEGER, comm TEXT,
    state TEXT, runq_ns INTEGER, cpu INTEGER, by_pid INTEGER, by_comm TEXT, prev_pid INTEGER, prev_comm TEXT,
    waker_pid INTEGER, waker_tid INTEGER, waker_comm TEXT, waker_irq INTEGER, open INTEGER, late INTEGER
);

-- Births and deaths: op is sched_process_fork, sched_process_exec, sched_process_exit, thread_create, thread_exit.
CREATE TABLE tasks (
    id INTEGER PRIMARY KEY, mono_ns INTEGER, pid INTEGER, tid INTEGER, comm TEXT, op TEXT,
    child_pid INTEGER, child_tid INTEGER, exe TEXT, code INTEGER
);

-- Amounts over an interval: src mem (mm_page_alloc: count pages, bytes), block (read, write, discard: bytes, dev),
-- net (tcp_retransmit: count).
CREATE TABLE amounts (
    id INTEGER PRIMARY KEY, mono_ns INTEGER, dur_ns INTEGER, pid INTEGER, tid INTEGER, comm TEXT,
    src TEXT, op TEXT, count INTEGER, bytes INTEGER, dev TEXT
);

-- The machine over the past interval, about one row a second. throttled_ns: all cgroups together; gpu_*: the mean over
-- the GPUs, where they were sampled.
CREATE TABLE samples (
    id INTEGER PRIMARY KEY, mono_ns INTEGER, dur_ns INTEGER, cpu_pct REAL, cpu_max_pct REAL, cpus INTEGER,
    runnable REAL, iowait_pct REAL, steal_pct REAL, mem_avail_bytes INTEGER, swap_used_bytes INTEGER,
    psi_cpu REAL, psi_memory REAL, psi_io REAL, throttled_ns INTEGER, gpu_util_pct REAL, gpu_mem_used_bytes INTEGER
);

-- The stream about itself: op is start, watch, lost, clock, end; detail is the whole record as JSON.
CREATE TABLE frames (
    id INTEGER PRIMARY KEY, mono_ns INTEGER, dur_ns INTEGER, op TEXT, stream TEXT, tool TEXT, pid INTEGER, comm TEXT,
    why TEXT, count INTEGER, detail TEXT
);

-- How many records of each kind there are.
CREATE TABLE totals (src TEXT, op TEXT, records INTEGER, PRIMARY KEY (src, op));

-- Where the time of each process that uses CUDA went: ingero-chain's accounts. start_up_ns to not_judged_ns are classes, every
-- instant has one, and they add up to observed_ns. lost_ns = idle_ns + silence_ns; lost_share is of loop_ns. gpu_busy_pct:
-- over the loop, by the driver's counter; launch_bound_ns: how much of enqueue, between and other_call the GPU was idle by
-- that counter, give or take launch_bound_err_ns (an estimate beside the classes). steps: waits until the GPU was done.
CREATE TABLE accounts (
    pid INTEGER, comm TEXT, mono_ns INTEGER, observed_ns INTEGER, loop_mono_ns INTEGER, loop_ns INTEGER,
    lost_ns INTEGER, lost_share REAL, start_up_ns INTEGER, idle_ns INTEGER, silence_ns INTEGER, gpu_wait_ns INTEGER,
    enqueue_ns INTEGER, copy_ns INTEGER, memory_ns INTEGER, load_ns INTEGER, other_call_ns INTEGER, between_ns INTEGER,
    wind_down_ns INTEGER, not_judged_ns INTEGER, gpu_busy_pct REAL, launch_bound_ns INTEGER, launch_bound_err_ns INTEGER,
    steps INTEGER, steps_per_s REAL
);

-- What ingero-chain found. kind: gap, total, slow_call, host_calls, launch_bound, stall, oom. The causes of a finding and its
-- unexplained_ns add up to lost_ns; lost_share is of the process's loop. total: all gaps of a process once more. class: of
-- host_calls memory, load or copy. err_ns: what lost_ns of launch_bound may be off by. evidence_*: how complete the data is.
CREATE TABLE findings (
    finding TEXT PRIMARY KEY, kind TEXT, severity TEXT, mono_ns INTEGER, dur_ns INTEGER, pid INTEGER, comm TEXT,
    n INTEGER, lost_ns INTEGER, lost_share REAL, proven_ns INTEGER, gpu_wait_ns INTEGER, err_ns INTEGER, class TEXT,
    call_src TEXT, call TEXT, dir TEXT, bytes_from INTEGER, bytes_to INTEGER, p50_ns INTEGER, p99_ns INTEGER,
    max_ns INTEGER, ratio REAL, period_ns INTEGER, unexplained_ns INTEGER, summary TEXT, evidence_lost INTEGER,
    evidence_watched_share REAL, evidence_samples INTEGER
);
CREATE TABLE causes (finding TEXT, cause TEXT, ns INTEGER, share REAL);
-- Who went through a cause; of cpu_wait and worker_cpu_wait, who had the CPU.
CREATE TABLE blame (finding TEXT, cause TEXT, pid INTEGER, comm TEXT, ns INTEGER);
-- CUDA operations: of the cause cuda_call (n is NULL), and of host_calls (cause is NULL).
CREATE TABLE ops (finding TEXT, cause TEXT, op TEXT, dir TEXT, n INTEGER, ns INTEGER);
-- What to try; up_to_ns: what it could bring at most.
CREATE TABLE advice (finding TEXT, text TEXT, because TEXT, up_to_ns INTEGER);
-- Lost time of each gap finding over the whole recording, in at most 100 slices of dur_ns.
CREATE TABLE lost_time (finding TEXT, mono_ns INTEGER, dur_ns INTEGER, lost_ns INTEGER);
-- The longest and the latest occurrences of each finding. after_calls: calls before it.
CREATE TABLE occurrences (finding TEXT, mono_ns INTEGER, dur_ns INTEGER, after_calls INTEGER, unexplained_ns INTEGER);

-- One row a process. role: cuda, worker, other.
CREATE TABLE processes (
    pid INTEGER, comm TEXT, role TEXT, parent INTEGER, mono_ns INTEGER, dur_ns INTEGER, voluntary INTEGER,
    preempted INTEGER, avg_off_ns INTEGER, max_off_ns INTEGER, runq_ns INTEGER, pages INTEGER, page_bytes INTEGER
);
