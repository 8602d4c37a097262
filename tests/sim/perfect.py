"""Reports made from the truth: a right one that the checker must accept, wrong ones that it must not.

Without this a checker that lets everything pass would look like a tool that is always right.
"""

import bounds
import check
import verdicts
from account import CLASSES, LOST, SYNCHRONISE

SEVERITIES = ((0.2, "high"), (0.05, "medium"), (0.0, "low"))
QUIETEST = ("between", "enqueue", "gpu_wait", "other_call", "copy", "memory", "load", "wind_down", "not_judged", "silence", "idle")
TOLD = 0.9 * bounds.REPORTED  # of the loop: a right report tells of all that must be told of, and of a little more
MISSED = 1.1 * bounds.REPORTED  # what is certainly missed if it is left out


def severity(share):
    return next(s for low, s in SEVERITIES if share >= low)


def finding(op, pid, lost, loop_ns, causes=(), unexplained=0, **more):
    share = lost / loop_ns if loop_ns else 0.0
    return {"src": "chain", "op": op, "severity": severity(share), "pid": pid, "comm": "x", "lost_ns": lost, "lost_share": share,
            "unexplained_ns": unexplained, "causes": sorted(causes, key=lambda c: -c["ns"]), **more}


def picked(stretch):
    """One of the classes that the truth leaves open: lost as little as can be."""
    if len(stretch.classes) == len(CLASSES):
        return "not_judged"
    if "wind_down" in stretch.classes:
        return "wind_down"
    return next(name for name in QUIETEST if name in stretch.classes)


def account(acct, base):
    begin = min(acct.loop_from[1], acct.end)
    classes = {"start_up": begin - acct.start}
    for s in acct.stretches:
        ns = s.end - max(s.start, begin)
        if ns > 0:
            name = picked(s)
            classes[name] = classes.get(name, 0) + ns
    return {"src": "chain", "op": "account", "mono_ns": acct.start + base, "pid": acct.proc.pid, "comm": "x", "observed_ns": acct.end - acct.start,
            "loop_ns": max(0, acct.last_end - begin), "classes": classes}


def caused(gaps):
    """(causes, unexplained ns) of some gaps: the first name that is allowed for each part."""
    ns, who = {}, {}
    for g in gaps:
        for p in g.parts:
            name = min(p.causes - {"unexplained"} or {"unexplained"})
            ns[name] = ns.get(name, 0) + p.ns
            mine, blamed = who.setdefault(name, {}), p.blamed(name)
            if blamed:
                most = max(blamed, key=blamed.get)
                mine[most] = mine.get(most, 0) + min(p.ns, blamed[most])
    unexplained = ns.pop("unexplained", 0)
    return [{"cause": name, "ns": n, "who": [{"pid": pid, "comm": "x", "ns": w} for pid, w in who[name].items()], "ops": ["x"]}
            for name, n in ns.items()], unexplained


def gap_findings(pid, life):
    by_op = {}
    for g in life.gaps:
        if g.must:
            by_op.setdefault(g.call.op if g.call else None, []).append(g)
    for op, gs in by_op.items():
        lost, idle = sum(g.ns for g in gs), sum(g.idle[0] for g in gs)
        if lost >= TOLD * life.loop_ns:
            causes, unexplained = caused(gs)
            _, every = check.rhythm(gs)
            b = life.by_op[op]
            sure = sorted(name for name, (low, _) in b.causes.items() if low > 0.15 * lost)
            yield finding("gap", pid, lost, life.loop_ns, causes, unexplained, call=op, n=len(gs), max_ns=max(g.ns for g in gs), proven=idle == lost,
                          proven_ns=idle, most=b.lost[1], sure=sure, mixed=b.mixed, **({"period": {"ns": every[0]}} if every else {}))


def slow_findings(pid, life):
    for op, (b, _) in life.calls.items():
        lost, causes = b.lost[0], []
        for name, (low, _) in b.causes.items() if lost else ():
            if low and name != "unexplained":
                who = max(b.who.get(name, {pid: 0}).items(), key=lambda kv: kv[1])
                causes.append({"cause": name, "ns": low, "who": [{"pid": who[0], "comm": "x", "ns": min(low, who[1])}]})
        total = sum(c["ns"] for c in causes)
        if lost and total <= lost:
            yield finding("slow_call", pid, lost, life.loop_ns, causes, lost - total, call=op, n=b.n[0], most=b.lost[1], sure=[c["cause"] for c in causes],
                          mixed=b.mixed)


def loop_findings(scenario, pid, life):
    """host_calls and launch_bound; the account of a launch-bound loop gets its amount."""
    for p in life.parts:
        for name, (low, high) in p.acct.host_calls(p.loop_from).items():
            if low >= 0.05 * p.loop_ns > 0:
                yield finding("host_calls", pid, low, life.loop_ns, call=name, most=high)
        n, waited = verdicts.waits(p)
        if not (scenario.launch_bound and p.acct.exact and n >= 20 and waited <= 0.03 * n and p.loop_ns):
            continue
        lost = 0
        if scenario.gpu_sampled:
            at_work = verdicts.busy(p.proc.gpu_log, p.loop_from, p.loop_from + p.loop_ns)
            lost = max(0, p.loop_ns - at_work - sum(p.record["classes"].get(name, 0) for name in LOST))
            p.record.update(launch_bound_ns=lost, launch_bound_err_ns=p.loop_ns // 20)
        yield finding("launch_bound", pid, lost, life.loop_ns, call="cudaLaunchKernel")
    for p in life.parts:
        if scenario.gpu_sampled and p.loop_ns:
            at_work = verdicts.busy(p.proc.gpu_log, p.loop_from, p.loop_from + p.loop_ns)
            p.record["gpu_busy_pct"] = 100 * at_work / p.loop_ns


def report(scenario):
    """The accounts, and a finding for each group of which something must be said."""
    world, checker = scenario.world, check.Checker(scenario)
    accounts = [account(acct, world.base) for acct in checker.all_accounts() if acct.calls]
    out = []
    for pid, life in checker.truth(accounts).items():
        out += [*gap_findings(pid, life), *slow_findings(pid, life), *loop_findings(scenario, pid, life)]
    return accounts + out + [{"src": "chain", "op": "summary"}]


# ---- wrong reports

def told_as_slow(record, records):
    """Is the time of `host_calls` that of slow calls, of which it may be told as well?"""
    slow = sum(r["lost_ns"] for r in records if r["op"] == "slow_call" and r["pid"] == record["pid"] and r["call"] not in SYNCHRONISE)
    return slow >= 0.9 * record["lost_ns"]


def wrong(records, accounts):
    """Mutations of a report: (name, report)."""
    for i, record in enumerate(records[:-1]):
        def but(**changes):
            return records[:i] + [{**record, **changes}] + records[i + 1:]

        if record["op"] == "account":
            acct = accounts[record["pid"]]
            sure = {name: low for name, (low, _) in acct.bounds(acct.start + record["classes"]["start_up"]).items()}
            sure["start_up"] = acct.loop_from[0] - acct.start
            yield "no account", records[:i] + records[i + 1:]
            yield from wrong_accounts(record, but, sure)
        elif record["op"] in ("gap", "slow_call"):
            if record["lost_share"] >= MISSED:
                yield "left out", records[:i] + records[i + 1:]
            yield from wrong_findings(record, but)
        elif record["op"] == "launch_bound" or record["lost_share"] > 0.08 and not told_as_slow(record, records):
            yield f"no {record['op']}", records[:i] + records[i + 1:]
    yield "a drop", records[:-1] + [{**finding("drop", records[0]["pid"], 1, 100), "causes": [], "unexplained_ns": 1}] + records[-1:]


def wrong_accounts(record, but, sure):
    classes, observed = record["classes"], record["observed_ns"]
    biggest = max((n for n in classes if n not in ("not_judged", "wind_down", "start_up")), key=lambda n: sure[n], default=None)

    def moved(source, target, ns):
        return but(classes={**classes, source: classes[source] - ns, target: classes.get(target, 0) + ns})

    yield "one nanosecond too many", but(classes={**classes, "between": classes.get("between", 0) + 1})
    yield "a class of no contract", but(classes={**classes, "misc": 0})
    yield "longer than it was seen", but(observed_ns=observed + 5_000_000, classes={**classes, "idle": classes.get("idle", 0) + 5_000_000})
    if biggest and sure[biggest] > 1_000_000:
        yield "an unknown rest", moved(biggest, "not_judged", classes[biggest] // 2)
        yield "all in start_up", moved(biggest, "start_up", classes[biggest])
    for source, target in (("idle", "silence"), ("idle", "between"), ("gpu_wait", "idle"), ("between", "idle"), ("enqueue", "other_call"),
                           ("memory", "other_call"), ("load", "enqueue"), ("start_up", "idle")):
        if sure[source] > 1_000_000:
            yield f"{source} as {target}", moved(source, target, classes[source])
    yield "a loop of everything", but(loop_ns=observed + 1)


def wrong_findings(c, but):
    if c["causes"]:
        first = c["causes"][0]
        if first["ns"] > 0.15 * c["lost_ns"] and first["cause"] in c["sure"]:
            yield "another cause", but(causes=[{**first, "cause": "steal"}] + c["causes"][1:])
            yield "nothing explained", but(causes=[], unexplained_ns=c["lost_ns"])
            if first["cause"].startswith("worker") and not c["mixed"]:
                yield "another process", but(causes=[{**first, "who": [{"pid": 99999, "comm": "y", "ns": first["ns"]}]}] + c["causes"][1:])
            yield "does not add up", but(causes=[{**first, "ns": first["ns"] + first["ns"] // 10}] + c["causes"][1:])
    more = c["most"] * 5 // 4 - c["lost_ns"]
    yield "a quarter more lost", but(lost_ns=c["lost_ns"] + more, unexplained_ns=c["unexplained_ns"] + more)
    yield "played down", but(severity="low" if c["op"] == "gap" and c["severity"] != "low" else "none")
    yield "a share of something else", but(lost_share=c["lost_share"] / 2)
    if c["op"] == "gap" and c["proven"] and len(c) and c["call"]:
        yield "not proven", but(proven=False, proven_ns=0)


def false_alarms(scenario, records):
    """Findings where there is certainly nothing of the kind: (name, report)."""
    accounts = [r for r in records if r["op"] == "account"]
    for pid, life in check.Checker(scenario).truth(accounts).items():
        n, waited = (sum(counts) for counts in zip(*map(verdicts.waits, life.parts)))
        if n >= 5 and waited > 0.5 * n and life.loop_ns:
            yield "launch_bound, though it waits for the GPU", records[:-1] + [finding("launch_bound", pid, life.loop_ns // 4, life.loop_ns)] + records[-1:]
        most = sum(high for p in life.parts for _, high in p.acct.host_calls(p.loop_from).values())
        if most < verdicts.UNASKED * life.loop_ns / 2:
            yield "host_calls of nothing", records[:-1] + [finding("host_calls", pid, life.loop_ns // 4, life.loop_ns)] + records[-1:]


def fails_of(scenario, records):
    return check.Checker(scenario).check(records)


def undecided(scenario):
    """Is there so much missing or left open that a wrong report cannot be told from a right one?"""
    accounts = check.Checker(scenario).all_accounts()
    return any(not a.exact or a.fog for a in accounts) or len({p.pid for p in scenario.world.cuda_watch}) != len(accounts)


def problems(scenario):
    right = report(scenario)
    if len(right) == 1:
        return []
    fails = [f for f in fails_of(scenario, right) if f[0] != "missed" or "hung" not in f[1] and "made no call" not in f[1]]
    out = [f"a report made from the truth is refused: {kind}: {text}" for kind, text in fails]
    if undecided(scenario):
        return out
    before = len(fails_of(scenario, right))
    accounts = {acct.proc.pid: acct for acct in check.Checker(scenario).all_accounts()}
    for name, records in [*wrong(right, accounts), *false_alarms(scenario, right)]:
        if len(fails_of(scenario, records)) <= before:
            out.append(f"a wrong report ({name}) is accepted: {[check.brief(c) for c in records if c['op'] in check.FINDINGS]}")
    return out


