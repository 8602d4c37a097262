//! Off-CPU intervals: their number and lengths against the kernel's own counters, and who is named in them.

use super::*;

fn sum(records: &[&Value], key: &str) -> u64 {
    records.iter().map(|r| r[key].as_u64().unwrap()).sum()
}

/// Fails unless `got`, or that and a part of `spare`, is within so many per cent of `want`.
#[track_caller]
fn within(pct: f64, what: &str, got: u64, spare: u64, want: u64) {
    let (least, most) = (want as f64 * (1.0 - pct / 100.0), want as f64 * (1.0 + pct / 100.0));
    assert!(got as f64 <= most && (got + spare) as f64 >= least, "{what}: {got} + {spare} against {want}");
}

#[test]
pub(crate) fn switches_and_times_agree_with_the_kernels_own_counters() {
    let _machine = Machine::take();
    // A prime number of rounds, each with a sleep, a yield and some preemption.
    let (workload, records) = watched(&["counted", "211"], &[]);
    let tid = workload.pid();
    let off = switches(&records, &workload, tid);
    let preempted = off.iter().filter(|r| r["state"] == "R").count() as u64;
    let voluntary = off.len() as u64 - preempted;

    // /proc/PID/status counts to the unit. A switch from a process that the kernel hides from tracing (some sandboxes do)
    // is not seen; the interval that it ended is lost then, and said to be.
    let lost: Vec<_> = records.of("ingero", "lost").filter(|r| r["pid"] == tid).collect();
    let counted = workload.said("voluntary") + workload.said("preempted");
    assert_eq!(off.len() + lost.len(), usize::try_from(counted).unwrap(), "{lost:?}");
    assert!(voluntary <= workload.said("voluntary") && preempted <= workload.said("preempted"));
    // On a slow machine a sleep can be over before the thread has left its CPU.
    assert!(voluntary + lost.len() as u64 > 211 / 2 && preempted > 50, "{voluntary} {preempted}");

    // /proc/PID/schedstat: time spent waiting on a run queue. What is lost is some part of its interval.
    let spare = lost.iter().map(|r| r["dur_ns"].as_u64().unwrap()).sum();
    within(2.0, "run delay", sum(&off, "runq_ns"), spare, workload.said("run_delay_ns"));
    // What is not off is on.
    let wall = workload.said("to_ns") - workload.said("from_ns");
    within(1.0, "on + off", sum(&off, "dur_ns") + workload.said("cpu_ns"), spare, wall);

    // Whom it gave the CPU to came back at that very instant, and had it from nobody else.
    let rival = workload.id("rival");
    let to_rival: Vec<_> = off.iter().filter(|r| r["by"]["tid"] == rival).collect();
    assert!(to_rival.len() > 50, "{} of {}", to_rival.len(), off.len());
    let taken: Vec<_> = records.of("sched", "sched_switch").filter(|r| r["tid"] == rival).collect();
    let unseen = records.of("ingero", "lost").filter(|r| r["pid"] == rival).count();
    let unanswered = to_rival
        .iter()
        .filter(|given| !taken.iter().any(|taken| given["mono_ns"] == end_ns(taken) && taken["prev"]["tid"] == tid));
    assert!(unanswered.count() <= unseen);
    assert!(off.iter().all(|r| r["prev"]["tid"].is_u64()));
    // Without type information a thread whose birth was not seen is of no known process, and is named nowhere.
    let unnamed = off.iter().filter(|r| !r["by"]["tid"].is_u64()).count();
    assert!(unnamed == 0 || (raw::is_on() && unnamed * 10 < off.len()), "{unnamed} of {}", off.len());
}

#[test]
pub(crate) fn the_one_who_writes_to_the_pipe_is_the_waker() {
    let _machine = Machine::take();
    let (workload, records) = watched(&["ping-pong", "4001"], &[]);
    let (ping, pong) = (workload.pid(), workload.id("child"));
    let asleep: Vec<_> = switches(&records, &workload, ping).into_iter().filter(|r| r["state"] == "S").collect();
    // It need not sleep each time: on another CPU the answer may be there already.
    assert!(asleep.len() > 400, "{}", asleep.len());
    for r in asleep {
        assert_eq!((&r["waker"]["pid"], &r["waker"]["comm"]), (&pong.into(), &"pong".into()), "{r}");
        assert_eq!(r["comm"], "ping");
    }
    let answers = switches(&records, &workload, pong).into_iter().filter(|r| r["state"] == "S");
    for r in answers {
        assert_eq!((&r["waker"]["pid"], &r["comm"]), (&ping.into(), &"pong".into()), "{r}");
    }
}

#[test]
pub(crate) fn a_timer_is_no_thread() {
    let _machine = Machine::take();
    let (workload, records) = watched(&["timer", "307"], &[]);
    let asleep: Vec<_> =
        switches(&records, &workload, workload.pid()).into_iter().filter(|r| r["state"] == "S").collect();
    let lost = records.of("ingero", "lost").filter(|r| r["pid"] == workload.pid()).count();
    // On a slow machine a sleep can be over before the thread has left its CPU; the kernel has counted those that it did sleep.
    let slept = usize::try_from(workload.said("voluntary")).unwrap();
    assert!(
        asleep.len() <= slept && asleep.len() + lost >= slept && slept > 307 / 2,
        "{} {lost} {slept}",
        asleep.len()
    );
    // The bystander was on the CPU that the interrupt came to. A wake-up that strikes in the midst of a process which the kernel
    // hides from tracing (see above) is not seen, and is nobody's then.
    assert!(asleep.iter().all(|r| r["waker"].is_null()), "{asleep:?}");
    let by_interrupt = asleep.iter().filter(|r| r["waker_irq"] == true).count();
    assert!(by_interrupt * 10 >= asleep.len() * 9, "{by_interrupt} of {}", asleep.len());
}

#[test]
pub(crate) fn what_never_comes_back_is_open() {
    let _machine = Machine::take();
    let mut workload = Workload::start(&["stuck"]);
    workload.wait_for("stuck");
    // Both went off the CPU before anybody watched: all that is known of them is from now on.
    let sched = sched_on(workload.pid(), &["-d", "300ms"]);
    let records = check(sched.wait().exits(0));
    workload.end();

    let watch = records.0.iter().find(|r| is_watch(r, workload.pid())).unwrap();
    let end = records.only("ingero", "end")["mono_ns"].as_u64().unwrap();
    for (tid, state) in [(workload.id("sleeper"), "S"), (workload.id("waiter"), "D")] {
        let off: Vec<_> = records.of("sched", "sched_switch").filter(|r| r["tid"] == tid).collect();
        assert_eq!(off.len(), 1, "{off:?}");
        let r = off[0];
        assert_eq!((&r["state"], &r["open"], &r["runq_ns"]), (&state.into(), &true.into(), &0.into()), "{r}");
        assert!(r["mono_ns"].as_u64() <= watch["mono_ns"].as_u64() && end_ns(r) <= end, "{r} {watch}");
        assert!(r["dur_ns"].as_u64().unwrap() >= 300_000_000, "{r}");
        assert!(r["by"].is_null() && r["waker"].is_null(), "nobody saw it leave: {r}");
    }
}
