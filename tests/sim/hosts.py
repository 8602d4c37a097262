"""What ingero-join must have put into each CUDA record, from the intervals that were written."""

from bisect import bisect_right


def intervals(world):
    """Thread -> (start, end, runq_ns, off) of its written off-CPU records, in order; they do not overlap."""
    out = {}
    for proc, watched in world.sched_watch.items():
        for th in proc.threads:
            offs = list(th.offs) + ([th.off] if th.off is not None and th.died is None else [])
            for off in offs:
                if id(off) in world.off_written:
                    end, rec, _ = world.off_record(off, watched)
                    start = rec["mono_ns"] - world.base
                    runq = rec.get("runq_ns", 0)
                    if rec.get("state") == "R":
                        runq = end - start
                    out.setdefault(th, []).append((start, end, runq, off))
    for offs in out.values():
        offs.sort(key=lambda o: o[:2])
    return out


def expected(world, offs, call):
    lo, hi = call.start, call.end if call.end is not None else world.end
    host = dict(off_ns=0, preempted_ns=0, runq_ns=0, sleep_ns=0, io_ns=0, unknown_ns=0)
    for start, end, runq, off in offs[bisect_right(offs, lo, key=lambda o: o[1]):]:
        if start >= hi:
            break
        a, b = max(lo, start), min(hi, end)
        if a >= b:
            continue
        kind = "unknown_ns" if off in world.stateless else {"R": "preempted_ns", "S": "sleep_ns", "D": "io_ns"}[off.state]
        host[kind] += b - a
        host["off_ns"] += b - a
        host["runq_ns"] += max(0, b - max(a, end - runq))
    return host


def watched(world, call):
    """True, False, or None where the loss may be read either way (it touches only an end)."""
    since = world.sched_watch.get(call.th.proc)
    end = call.end if call.end is not None else world.end
    if since is None or since > call.start or end > world.sched_end:
        return False
    near = [(a, b) for s, a, b in world.declared if s == "sched" and a <= end + 10_000_000 and b >= call.start - 10_000_000]
    over = [b for a, b in near if a < end and b > call.start]
    if over:
        # told of within its window, ingero-join must say so; what comes later it cannot wait for
        return False if min(over) < end + 200_000_000 else None
    return None if near or since == call.start else True


def check(world, records):
    """Problems in the joined records."""
    by_key = {}
    for rec in records:
        if rec.get("src") in ("cudart", "cuda", "nccl") and rec.get("depth") == 0:
            by_key[(rec["tid"], rec["mono_ns"], rec["op"])] = rec
        elif rec.get("depth") == 1 and "host" in rec:
            yield "host on a nested call"
    offs = intervals(world)
    for proc in world.cuda_watch:
        for call in world.seen_calls(proc):
            if id(call) not in world.written:
                continue
            rec = by_key.get((call.th.tid, call.start + world.base, call.op))
            if rec is None:
                yield f"join: the call of tid {call.th.tid} at {call.start + world.base} is gone"
                continue
            host = rec.get("host")
            if host is None:
                yield f"join: no host at {call.start + world.base}"
                continue
            want = watched(world, call)
            if want is not None and host.get("watched") is not want:
                yield f"join: {call.op} tid {call.th.tid} at {call.start + world.base}: watched {host.get('watched')}, should be {want}"
            for key, value in expected(world, offs.get(call.th, ()), call).items():
                if host.get(key, 0) != value:
                    yield f"join: {call.op} tid {call.th.tid} at {call.start + world.base}: {key} {host.get(key)}, should be {value}"
