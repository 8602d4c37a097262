"""Reports made from the truth: a right one that the checker must accept, wrong ones that it must not.

Without this a checker that lets everything pass would look like a tool that is always right.
"""

import check

SEVERITIES = ((0.2, "high"), (0.05, "medium"), (0.0, "low"))


def chain(op, pid, call, lost, n, causes, unexplained, wall):
    share = lost / wall
    return {"src": "chain", "op": op, "severity": next(s for low, s in SEVERITIES if share >= low), "pid": pid, "comm": "x",
            "call": call, "n": n, "lost_ns": lost, "lost_share": share, "unexplained_ns": unexplained,
            "causes": sorted(causes, key=lambda c: -c["ns"])}


def report(scenario):
    """One chain for each group of which something must be said, with the causes that are certain."""
    checker = check.Checker(scenario)
    wall, out = checker.wall, []
    for pid, (by_op, calls, found) in checker.truth().items():
        groups = [("gap", op, b) for op, b in by_op.items()] + [("slow_call", op, b) for op, (b, _) in calls.items()]
        for kind, op, b in groups:
            lost = b.lost[0]
            if not lost or op is None:
                continue
            causes = []
            for name, (low, _) in b.causes.items():
                if low and name != "unexplained":
                    who = max(b.who.get(name, {pid: 0}).items(), key=lambda kv: kv[1])
                    causes.append({"cause": name, "ns": low, "who": [{"pid": who[0], "comm": "x", "ns": min(low, who[1])}]})
            total = sum(c["ns"] for c in causes)
            if total > lost:
                continue
            c = chain(kind, pid, op, lost, b.n[0], causes, lost - total, wall)
            c["most"] = b.lost[1]
            if kind == "gap":
                gs = [g for g in found if g.call and g.call.op == op and g.ns >= 8_000_000]
                c["proven"] = bool(gs) and all(g.drained for g in gs)
            out.append(c)
    return out + [{"src": "chain", "op": "summary"}]


def wrong(chains):
    """Mutations of a report: (name, report)."""
    for i, c in enumerate(chains[:-1]):
        def but(**changes):
            return chains[:i] + [{**c, **changes}] + chains[i + 1:]

        yield "left out", chains[:i] + chains[i + 1:]
        if c["causes"]:
            first = c["causes"][0]
            if first["ns"] > 0.15 * c["lost_ns"]:
                yield "another cause", but(causes=[{**first, "cause": "steal"}] + c["causes"][1:])
                yield "nothing explained", but(causes=[], unexplained_ns=c["lost_ns"])
                more = first["ns"] // 10
                if first["cause"].startswith("worker"):
                    yield "another process", but(causes=[{**first, "who": [{"pid": 99999, "comm": "y", "ns": first["ns"]}]}] + c["causes"][1:])
                yield "does not add up", but(causes=[{**first, "ns": first["ns"] + more}] + c["causes"][1:])
        more = c["most"] * 5 // 4 - c["lost_ns"]
        yield "a quarter more lost", but(lost_ns=c["lost_ns"] + more, unexplained_ns=c["unexplained_ns"] + more)
        yield "played down", but(severity="low" if c["op"] == "gap" else "none")


def problems(scenario):
    right = report(scenario)
    fails = [f for f in check.Checker(scenario).check(right) if f[0] not in ("missed",) or "hung" not in f[1] and "made no call" not in f[1]]
    out = [f"a report made from the truth is refused: {kind}: {text}" for kind, text in fails]
    for name, chains in wrong(right):
        if len(check.Checker(scenario).check(chains)) <= len(fails):
            out.append(f"a wrong report ({name}) is accepted: {[check.brief(c) for c in chains if c['op'] != 'summary']}")
    return out
