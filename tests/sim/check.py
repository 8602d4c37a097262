"""Compare what the tools report with the truth of a scenario.

A failure is (kind, text):
    crash, json    a tool ended with an error, a line is no JSON
    host           ingero-join's account of a call
    sum, severity, proven    a chain contradicts itself or its gaps
    false-alarm, missed      medium or high without truth; truth without a chain
    lost, n, ns              too much or too little of it
    cause, unexplained       a name (or none) for more time than is true
    first, who               the wrong name in front, the wrong process blamed
"""

import json
import subprocess

import bounds
import hosts
from truth import DRAINS, Paths, gaps, slow_calls

ALARM = ("medium", "high")
FINDINGS = ("gap", "slow_call", "drop", "stall", "oom")
STALL_NS = 2_000_000_000  # what is in flight or silent for less may still be under way


def strict(text):
    def no(value):
        raise ValueError(value)

    return json.loads(text, parse_constant=no)


def run_tools(bin_dir, cuda, sched):
    """Both tools on two files: (joined bytes, chain bytes, failures)."""
    fails = []
    join = subprocess.run([f"{bin_dir}/ingero-join", cuda, sched], stdin=subprocess.DEVNULL, capture_output=True, timeout=120)
    if join.returncode != 0:
        fails.append(("crash", f"ingero-join exits with {join.returncode}: {join.stderr[-400:].decode(errors='replace')}"))
    chain = subprocess.run([f"{bin_dir}/ingero-chain", "--format", "ndjson"], input=join.stdout, capture_output=True, timeout=120)
    if chain.returncode != 0:
        fails.append(("crash", f"ingero-chain exits with {chain.returncode}: {chain.stderr[-400:].decode(errors='replace')}"))
    return join.stdout, chain.stdout, fails


def parse(data, what, fails):
    out = []
    for line in data.split(b"\n"):
        if line:
            try:
                out.append(strict(line.decode()))
            except (ValueError, UnicodeDecodeError) as err:
                fails.append(("json", f"{what}: {err}: {line[:200]!r}"))
    return out


class Checker:
    def __init__(self, scenario):
        self.s, self.world = scenario, scenario.world
        self.wall = self.world.end - self.world.start
        self.fails = []

    def fail(self, kind, text):
        self.fails.append((kind, text))

    def truth(self):
        """pid -> (bounds of gaps by op, bounds of calls by op, all gaps)."""
        paths, out = Paths(self.world), {}
        for proc in self.world.cuda_watch:
            found = gaps(self.world, proc, paths)
            g, c = bounds.of_gaps(found, self.wall), bounds.of_calls(slow_calls(self.world, proc, paths), self.wall)
            if proc.pid in out:  # two lives of one PID
                for op, b in g.items():
                    out[proc.pid][0].setdefault(op, bounds.Bounds()).add(b)
                for op, (warm, every) in c.items():
                    mine = out[proc.pid][1].setdefault(op, (bounds.Bounds(), bounds.Bounds()))
                    mine[0].add(warm)
                    mine[1].add(every)
                out[proc.pid][2].extend(found)
            else:
                out[proc.pid] = (g, c, found)
        return out

    def check(self, records):
        chains = [r for r in records if r.get("src") == "chain" and r.get("op") in FINDINGS]
        if not any(r.get("src") == "chain" and r.get("op") == "summary" for r in records):
            self.fail("crash", "no summary")
        truth = self.truth()
        for c in chains:
            self.shape(c)
            if c.get("pid") not in truth:
                self.fail("false-alarm", f"{brief(c)} on a process that makes no CUDA calls")
        for pid, (g, c, found) in truth.items():
            mine = [x for x in chains if x.get("pid") == pid]
            self.gap_chains(pid, g, found, [x for x in mine if x["op"] == "gap"], mine)
            self.call_chains(pid, c, [x for x in mine if x["op"] == "slow_call"])
            self.others(pid, found, mine)
        return self.fails

    def shape(self, c):
        """What must hold in a chain whatever is true."""
        lost = c.get("lost_ns")
        total = sum(x.get("ns", 0) for x in c.get("causes", [])) + c.get("unexplained_ns", 0)
        if total != lost:
            self.fail("sum", f"{brief(c)}: causes and unexplained make {total}, lost_ns is {lost}")
        share = c.get("lost_share")
        # of the whole observed time, or of what of it the process lived and was watched
        lives = [min(p.died or self.world.end, self.observed_to(p)) - at for p, at in self.world.cuda_watch.items() if p.pid == c.get("pid")]
        lives += [self.observed_to(p) - self.world.start for p in self.world.cuda_watch if p.pid == c.get("pid")]
        right = [lost / self.wall] + [lost / ns for ns in lives if ns]
        if share is None or all(abs(share - r) > 0.05 * r + 0.002 for r in right):
            self.fail("severity", f"{brief(c)}: lost_share {share}, should be {' or '.join(f'{r:.4f}' for r in right)}")
            return
        # what cannot have been a wait for the GPU counts by itself
        counts = share * (1 - c.get("gpu_wait_ns", 0) / lost) if c.get("gpu_wait_ns", 0) > lost / 2 else share
        want = "high" if counts >= 0.2 else "medium" if counts >= 0.05 else "low"
        quiet = c["op"] in ("slow_call", "drop") or c["op"] == "stall" and lost < STALL_NS
        if c.get("severity") != want and not (quiet and c.get("severity") == "low"):
            self.fail("severity", f"{brief(c)}: {c.get('severity')} at a share of {share}")
        order = [x["ns"] for x in c.get("causes", [])]
        if order != sorted(order, reverse=True):
            self.fail("first", f"{brief(c)}: causes are not in order")
        for x in c.get("causes", []):
            if sum(w.get("ns", 0) for w in x.get("who", [])) > x["ns"]:
                self.fail("who", f"{brief(c)}: {x['cause']} {x['ns']} is less than its who {x['who']}")
        if self.s.healthy and c.get("severity") in ALARM:
            self.fail("false-alarm", f"{brief(c)} in a healthy run")

    def observed_to(self, proc):
        """Until when the CUDA tracer looked: where it was killed, its last record."""
        if self.world.killed != "cuda":
            return self.world.end
        return max([c.end for calls in self.world.visible.values() for c in calls] or [self.world.end])

    # ---- the three families

    def gap_chains(self, pid, by_op, found, chains, all_chains):
        # where calls were lost, the one that ends a gap may be another than in truth
        named = all("call" in c for c in chains) and not any(name == "cuda" for name, *_ in self.world.lost)
        ops = set(by_op) | {c.get("call") for c in chains} if named else set()
        for op in ops if named else ():
            b = by_op.get(op, bounds.Bounds())
            mine = [c for c in chains if c.get("call") == op]
            if op is None:
                b.lost[0] = 0
            self.compare(f"gaps of {pid} before {op}", b, mine, 0)
            gs = [g for g in found if (g.call.op if g.call else None) == op and g.ns >= bounds.POSSIBLE_GAP_NS]
            big = [g for g in gs if g.ns >= bounds.CERTAIN_GAP_NS]
            if len(mine) == 1 and big and not (self.world.lost or self.s.sched_late or self.s.sched_stops or self.world.killed) and all(g.must for g in big):
                if all(g.drained is True for g in gs) and mine[0].get("proven") is not True:
                    self.fail("proven", f"{brief(mine[0])}: each gap follows a synchronise, proven is {mine[0].get('proven')}")
                if all(g.drained is False for g in gs) and mine[0].get("proven") is True:
                    self.fail("proven", f"{brief(mine[0])}: proven, but no gap follows a synchronise")
        if not named:
            total = bounds.Bounds()
            for b in by_op.values():
                total.add(b)
            self.compare(f"gaps of {pid}", total, chains, 0)

    def call_chains(self, pid, by_op, chains):
        for op in set(by_op) | {c.get("call") for c in chains}:
            mine = [c for c in chains if c.get("call") == op]
            warm, every = by_op.get(op, (bounds.Bounds(), bounds.Bounds()))
            # a synchronise that waits for a busy GPU is no host fault: it may be played down
            loud = [c for c in mine if c.get("severity") in ALARM or op in DRAINS]
            if loud or warm.lost[0]:
                self.compare(f"slow {op} of {pid}", warm, loud, warm.slack)
            elif mine:
                self.compare(f"slow {op} of {pid} (low)", every, mine, every.slack, cold=True)

    def others(self, pid, found, chains):
        """drop and stall: only what is beyond doubt."""
        tail = next((g for g in found if g.call is None), None)
        tail_ns = tail.ns if tail and self.world.cuda_watch and tail.last else 0
        hung = [c for p in self.world.cuda_watch if p.pid == pid for c in self.world.seen_calls(p) if c.end is None and c.attrs.get("count")]
        loud = [c for c in chains if c.get("severity") in ALARM]
        if hung and not self.world.lost:
            length = self.world.end - hung[0].start
            if length > 0.06 * self.wall and length > STALL_NS:
                ok = [c for c in loud if c["op"] in ("stall", "slow_call") and abs(c["lost_ns"] - length) <= 0.02 * length]
                if not ok:
                    self.fail("missed", f"a call of {pid} hung for {length} ns: {[brief(c) for c in loud]}")
                elif any(x["cause"] != "blocked" and x["ns"] > 0.01 * length for x in ok[0].get("causes", [])):
                    self.fail("cause", f"{brief(ok[0])}: {ok[0]['causes']} for a call asleep")
        if self.s.kind == "stalled" and tail_ns > 0.2 * self.wall and tail_ns > STALL_NS and not self.world.lost:
            near = [c for c in loud if abs(c["lost_ns"] - tail_ns) <= 0.02 * tail_ns]
            if not near:
                self.fail("missed", f"{pid} made no call for the last {tail_ns} ns: {[brief(c) for c in loud]}")
            for c in near:
                b = bounds.of_gaps([tail], self.wall)[None]
                self.compare(f"stall of {pid}", b, [c], 0)
        if self.s.hung and hung and not [c for c in chains if c["op"] == "stall"]:
            self.fail("missed", f"a call of {pid} hung for {self.world.end - hung[0].start} ns at the end: {[brief(c) for c in chains]}")
        if self.s.periodic and not self.world.lost:
            self.period(pid, found, [c for c in loud if c["op"] == "gap"])
        if self.s.slowed and not self.world.lost:
            if not [c for c in loud if c["op"] in ("drop", "gap")]:
                self.fail("missed", f"calls of {pid} became rare: {[brief(c) for c in chains]}")
        for c in loud:
            if c["op"] == "stall" and self.world.killed == "cuda":
                self.fail("false-alarm", f"{brief(c)}: its tracer was killed")
            elif c["op"] == "stall" and not hung and tail_ns < 0.05 * self.wall:
                self.fail("false-alarm", f"{brief(c)}: its last call is {tail_ns} ns before the end")

    def period(self, pid, found, loud):
        starts = [g.start for g in found if g.call and g.ns > 15_000_000 and g.must]
        every = sorted(b - a for a, b in zip(starts, starts[1:]))
        if len(every) < 6 or every[-1] > 1.08 * every[0]:
            return
        for c in loud:
            said = (c.get("period") or {}).get("ns", 0)
            if c["n"] >= len(starts) and not 0.9 * every[0] <= said <= 1.1 * every[-1]:
                self.fail("period", f"{brief(c)}: period {c.get('period')}, should be {every[0]}..{every[-1]}")

    # ---- one comparison

    def compare(self, what, b, chains, slack, cold=False):
        tol = b.tolerance()
        lost = sum(c["lost_ns"] for c in chains)
        n = sum(c.get("n", 0) for c in chains)
        if not chains:
            if b.lost[0]:
                self.fail("missed", f"{what}: at least {b.lost[0]} ns lost of {self.wall}, nothing reported")
            return
        if lost < b.lost[0] - tol or lost > b.lost[1] + tol:
            self.fail("lost", f"{what}: lost_ns {lost}, should be {b.lost[0]}..{b.lost[1]}")
        if not b.n[0] <= n <= b.n[1]:
            self.fail("n", f"{what}: n {n}, should be {b.n[0]}..{b.n[1]}")
        said, who = {}, {}
        for c in chains:
            for x in c.get("causes", []):
                said[x["cause"]] = said.get(x["cause"], 0) + x["ns"]
                for w in x.get("who", []):
                    mine = who.setdefault(x["cause"], {})
                    mine[w["pid"]] = mine.get(w["pid"], 0) + w.get("ns", 0)
        said["unexplained"] = sum(c.get("unexplained_ns", 0) for c in chains)
        for name in sorted(set(said) | set(b.causes)):
            low, high = b.causes.get(name, (0, 0))
            ns = said.get(name, 0)
            if ns > high + tol:
                kind = "unexplained" if name == "unexplained" else "cause"
                self.fail(kind, f"{what}: {name} {ns}, at most {high} is true; said {said}")
            elif ns < low - tol:
                self.fail("ns", f"{what}: {name} {ns}, at least {low} is true; said {said}")
        self.first(what, b, said, tol)
        for name, pids in who.items():
            true = b.who.get(name, {})
            for pid, ns in pids.items():
                if name in ("host_cpu", "io_wait", "sleep", "blocked", "driver_cpu", "off_cpu", "quota"):
                    continue
                if ns > true.get(pid, 0) + tol:
                    self.fail("who", f"{what}: {name} blames {pid} for {ns}, at most {true.get(pid, 0)} is true; true {true}")
            if name in ("cpu_wait", "worker_cpu_wait") and true and not self.world.lost:
                top = max(true.items(), key=lambda kv: kv[1])
                if top[1] > 0.9 * sum(true.values()) and top[1] > 4 * tol and max(pids, key=pids.get) != top[0]:
                    self.fail("who", f"{what}: {name} blames {pids}, true {true}")
            if name.startswith("worker") and true and not b.mixed:
                top = sorted(true.items(), key=lambda kv: -kv[1])
                if len(top) == 1 or top[0][1] > 1.1 * top[1][1] + tol:
                    mine = max(pids.items(), key=lambda kv: kv[1])[0]
                    if mine != top[0][0] and top[0][1] > tol:
                        self.fail("who", f"{what}: {name} blames {pids}, true {true}")

    def first(self, what, b, said, tol):
        true = sorted(((low, name) for name, (low, _) in b.causes.items()), reverse=True)
        rest = max([high for name, (_, high) in b.causes.items() if true and name not in (true[0][1], "unexplained")] or [0])
        if true and true[0][0] > rest + 2 * tol:
            named = {k: v for k, v in said.items() if k != "unexplained"}
            first = max(named, key=named.get) if named else None
            if first != true[0][1]:
                self.fail("first", f"{what}: first cause {first}, should be {true[0][1]}; said {said}")


def brief(c):
    causes = ",".join(f"{x['cause']}={x['ns'] / 1e6:.1f}" for x in c.get("causes", []))
    return (f"{c.get('severity')} {c['op']} {c.get('call', '')} pid {c.get('pid')} n {c.get('n')} lost {c.get('lost_ns', 0) / 1e6:.1f} ms"
            f" [{causes} ?={c.get('unexplained_ns', 0) / 1e6:.1f}]")


def check(scenario, joined, chained):
    checker = Checker(scenario)
    fails = []
    for i, text in enumerate(hosts.check(scenario.world, parse(joined, "ingero-join", fails))):
        if i < 3:
            fails.append(("host", text))
    fails += checker.check(parse(chained, "ingero-chain", fails))
    return fails
