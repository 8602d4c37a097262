"""What must and what must not be said of host time in calls, and of loops that are bound by their launches."""

import json

from account import LOST, SYNCHRONISE

ASKED, UNASKED = 0.065, 0.045  # of the loop: certainly more, certainly less than the five percent that make a finding
ALARM = ("medium", "high")
WAITED_NS = 30_000  # a synchronise that takes longer has waited for the GPU


def host_calls(scenario, life, chains):
    """Memory, loading and pageable copies that take their share of the loop while the GPU may have work."""
    found = [c for c in chains if c["op"] == "host_calls"]
    least = most = 0
    possible = hidden = False
    for p in life.parts:
        hidden = hidden or bool(p.acct.fog)  # what calls are missing took is not known
        for low, high in p.acct.host_calls(p.loop_from).values():
            if p.acct.exact and not p.acct.fog and p.record and low >= ASKED * p.loop_ns:
                least += low
            most += high
            possible = possible or high >= UNASKED * p.loop_ns
    # Copies to an idle GPU that are asynchronous by name cost an amount that is not known: only their time is told.
    said = sum(max(c.get("lost_ns", 0), sum(op["ns"] for op in c.get("ops", []))) for c in found)
    # the same time may have been told of as what some calls took beyond the usual
    slow = sum(c["lost_ns"] for c in chains if c["op"] == "slow_call" and c.get("call") not in SYNCHRONISE)
    if least and not found and slow < 0.9 * least:
        yield f"at least {least} ns of {life.loop_ns} in memory, load or pageable copies, nothing said"
    elif said + slow < 0.9 * least:
        yield f"{said} ns said, at least {least} in memory, load or pageable copies"
    if found and not possible and not hidden:
        yield f"{said} ns said, but no kind takes five percent of the loop"
    elif said > 1.02 * most + 1_000_000 and not hidden:
        yield f"{said} ns said, at most {most} is true"


def waits(p):
    """(synchronises of the loop, those that waited for the GPU)."""
    calls = [c for c in p.acct.calls if c.op in SYNCHRONISE and c.end is not None and c.start >= p.loop_from]
    return len(calls), sum(c.end - c.start > WAITED_NS for c in calls)


def busy(log, lo, hi):
    """How much of [lo, hi] the GPU ran kernels: the union of the log's stretches."""
    total, at = 0, lo
    for a, b in sorted(log):
        a, b = max(a, at), min(b, hi)
        if a < b:
            total, at = total + b - a, b
    return total


def launch_bound(scenario, life, chains):
    found = [c for c in chains if c["op"] == "launch_bound"]
    for p in life.parts:
        if not p.acct.exact or p.acct.fog or p.record is None or p.loop_ns <= 0:
            continue
        n, waited = waits(p)
        if n >= 5 and waited > 0.5 * n and any(c.get("severity") in ALARM for c in found):
            yield f"{len(found)} findings, but {waited} of {n} synchronises waited for the GPU"
        if not n and found and not scenario.gpu_sampled:
            yield "a finding, but nothing was ever waited for"
        yield from amounts(scenario, p, found, n, waited)


def amounts(scenario, p, found, n, waited):
    fed = sum(p.acct.bounds(p.loop_from)[name][0] for name in ("enqueue", "between", "other_call"))
    hardly = n >= 20 and waited <= 0.03 * n
    if not scenario.gpu_sampled:
        if any(c.get("lost_ns") for c in found) or p.record.get("launch_bound_ns"):
            yield "an amount, without samples of the GPU's use"
        if hardly and fed > 0.5 * p.loop_ns and scenario.launch_bound and not found:
            yield f"only {waited} of {n} synchronises waited, nothing said"
        return
    end = p.loop_from + p.loop_ns
    at_work = busy(p.proc.gpu_log, p.loop_from, end)
    own = p.record.get("classes", {})
    idle = max(0, p.loop_ns - at_work - own.get("idle", 0) - own.get("silence", 0))
    said, err = p.record.get("launch_bound_ns") or 0, p.record.get("launch_bound_err_ns") or 0
    if scenario.copies:
        if found or said > err + 0.02 * p.loop_ns:
            yield f"launch_bound_ns {said}, but copies keep the GPU busy"
        return
    if hardly and idle > 0.1 * p.loop_ns and not found:
        yield f"the GPU was idle for {idle} ns of the loop's {p.loop_ns} beyond idle and silence, nothing said"
    if not hardly and idle < 0.02 * p.loop_ns and any(c.get("severity") in ALARM for c in found):
        yield f"a finding, but the GPU was busy for {at_work} ns of {p.loop_ns}"
    pct = p.record.get("gpu_busy_pct")
    # Samples count from a second after the beginning of a loop, since the counter is late, and there have to be two.
    if pct is None and p.loop_ns < 4_000_000_000:
        return
    if (found or said) and abs(said - idle) > err + 0.06 * p.loop_ns:
        yield f"launch_bound_ns {said} +- {err}, should be {idle} of {p.loop_ns}"
    if err > 0.3 * p.loop_ns and p.loop_ns > 2_000_000_000:
        yield f"an error of {err} ns says nothing of {p.loop_ns}"
    if p.loop_ns > 1_500_000_000 and (pct is None or abs(pct - 100 * at_work / p.loop_ns) > 8):
        yield f"gpu_busy_pct {pct}, should be {100 * at_work / p.loop_ns:.1f}"


def sampled(scenario, life, chains):
    """Of most calls nothing but their number is known: a pause counts only where those calls would leave one."""
    gaps = [c for c in chains if c["op"] == "gap"]
    lost = sum(c["lost_ns"] for c in gaps)
    for p in life.parts:
        own = p.record.get("classes", {}) if p.record else {}
        if scenario.sampling[0] == "dense":
            if gaps or any(own.get(name, 0) > 0.02 * p.loop_ns for name in LOST):
                yield f"{lost} ns in gaps, {own}: the missing calls leave no pause of a millisecond"
            if own.get("not_judged", 0) < 0.5 * p.loop_ns:
                yield f"not_judged {own.get('not_judged', 0)} of a loop of {p.loop_ns} whose calls are missing"
        elif lost < 0.8 * p.acct.lost(p.loop_from)[0]:
            yield f"{lost} ns in gaps: the pauses of {p.acct.lost(p.loop_from)[0]} ns are longer than any four calls could hide"


def kept(life, chains, base, explain):
    """However many occurrences there are, --explain still has the first of them and the longest."""
    for c in chains:
        gaps = [g for g in life.gaps if g.must and g.ops == {c.get("call")}]
        if c["op"] != "gap" or len(gaps) < 5000:
            continue
        records = [json.loads(line) for line in explain(c["id"]).splitlines()]
        there = next((r.get("occurrences", []) for r in records if r.get("id") == c["id"]), [])
        longest = max(gaps, key=lambda g: g.ns)
        if not any(abs(o["dur_ns"] - longest.ns) <= 1000 and abs(o["mono_ns"] - longest.start - base) <= 1000 for o in there):
            yield f"{c['id']}: the longest, {longest.ns} at {longest.start + base}, is not among its {len(there)} occurrences"
        if not any(o["mono_ns"] <= gaps[2].start + base for o in there):
            yield f"{c['id']}: none of its {len(there)} occurrences is one of the first"
        if not any(o["mono_ns"] >= gaps[-3].start + base for o in there):
            yield f"{c['id']}: none of its {len(there)} occurrences is one of the last"
