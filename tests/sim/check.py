"""Compare what the tools report with the truth of a scenario.

A failure is (kind, text):
    crash, json    a tool ended with an error, a line is no JSON
    host           ingero-join's account of a call
    account        it does not add up, or has time in a class in which it was not
    sum, shape, severity, proven    a finding contradicts itself, the account or its gaps
    host-calls, launch-bound    said without truth, or not said
    sampled, kept    judged although the calls are missing; occurrences that were not kept
    false-alarm, missed      medium or high without truth; truth without a chain
    lost, n, ns              too much or too little of it
    cause, unexplained       a name (or none) for more time than is true
    first, who               the wrong name in front, the wrong process blamed
"""

import copy
import json
import subprocess

import bounds
import hosts
import reported
import verdicts
from account import LOST, SYNCHRONISE, Account, programs
from truth import Paths, gaps, slow_calls

ALARM = ("medium", "high")
SEVERITIES = ("low", "medium", "high")
FINDINGS = ("gap", "slow_call", "drop", "stall", "oom", "host_calls", "launch_bound", "no_input", "late_rank")
SLACK_NS = 1_000  # of rounding, where everything is on record
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


def explain(bin_dir, joined, finding):
    done = subprocess.run([f"{bin_dir}/ingero-chain", "--format", "ndjson", "--explain", finding], input=joined, capture_output=True, timeout=120)
    return done.stdout


def parse(data, what, fails):
    out = []
    for line in data.split(b"\n"):
        if line:
            try:
                out.append(strict(line.decode()))
            except (ValueError, UnicodeDecodeError) as err:
                fails.append(("json", f"{what}: {err}: {line[:200]!r}"))
    return out


class Truths:
    """What is true of each process, given where its loop begins: worked out once, asked for many times."""

    def __init__(self, world):
        self.world, self.paths = world, Paths(world)
        self.accounts, self.lost, self.bounds = {}, {}, {}

    def accounts_of(self, proc):
        if proc not in self.accounts:
            self.accounts[proc] = [Account(self.world, proc, *stretch) for stretch in programs(self.world, proc)]
        return self.accounts[proc]

    def of(self, acct, loop_from, loop_ns):
        """(gaps, their bounds, those of slow calls): the bounds are the caller's to change."""
        key = acct, loop_from
        if key not in self.lost:
            self.lost[key] = tuple(find(self.world, acct.proc, self.paths, acct, loop_from) for find in (gaps, slow_calls))
        found, slow = self.lost[key]
        key = acct, loop_from, loop_ns
        if key not in self.bounds:
            self.bounds[key] = bounds.of_gaps(found, loop_ns), bounds.of_calls(slow, loop_ns)
        return found, *copy.deepcopy(self.bounds[key])


class Process:
    """One CUDA process: its account in truth, the account that was reported, and what follows from both."""

    def __init__(self, truths, acct, record):
        self.proc, self.record, self.acct = acct.proc, record, acct
        self.loop_from = reported.loop_from(acct, record)
        self.loop_ns = record.get("loop_ns", 0) if record else max(0, acct.last_end - self.loop_from)
        self.gaps, self.by_op, self.calls = truths.of(acct, self.loop_from, self.loop_ns)


class Life:
    """All that goes by one PID: mostly one process."""

    def __init__(self, parts):
        self.parts = parts
        self.gaps = [g for p in parts for g in p.gaps]
        self.loops = {p.loop_ns for p in parts} | {sum(p.loop_ns for p in parts)}
        self.loop_ns = max(self.loops)
        # to the nanosecond, where nothing is missing on record and nothing is left to choose
        self.exact = all(p.acct.exact and p.record and not p.acct.fog for p in parts)
        self.by_op, self.calls = {}, {}
        for p in parts:
            for op, b in p.by_op.items():
                self.by_op.setdefault(op, bounds.Bounds()).add(b)
            for op, (warm, every) in p.calls.items():
                mine = self.calls.setdefault(op, (bounds.Bounds(), bounds.Bounds()))
                mine[0].add(warm)
                mine[1].add(every)


def rhythm(found):
    """The long waits, and the distances between them where they are regular."""
    long = [g for g in found if g.call and g.ns > 15_000_000 and g.must]
    every = sorted(b.start - a.start for a, b in zip(long, long[1:]))
    return long, every if len(every) >= 6 and every[-1] <= 1.08 * every[0] else None


class Checker:
    def __init__(self, scenario):
        self.s, self.world = scenario, scenario.world
        self.wall = self.world.end - self.world.start
        self.truths = scenario.truths = getattr(scenario, "truths", None) or Truths(self.world)
        self.fails = []

    def fail(self, kind, text):
        self.fails.append((kind, text))

    def truth(self, accounts=()):
        """pid -> Life, given the reported accounts."""
        out, by_pid = {}, {}
        for record in sorted(accounts, key=lambda r: r.get("mono_ns", 0)):
            by_pid.setdefault(record.get("pid"), []).append(record)
        for acct in self.all_accounts():
            mine = by_pid.get(acct.proc.pid, [])
            # a program without a call, before or after one with calls, need not have an account
            record = mine.pop(0) if mine and (acct.calls or not acct.proc.execs) else None
            if record is None and acct.calls:
                self.fail("account", f"none for {acct.proc.pid}")
            for text in reported.against(acct, record) if record else ():
                self.fail("account", text)
            out.setdefault(acct.proc.pid, []).append(Process(self.truths, acct, record))
        for pid, left in by_pid.items():
            if left and not self.world.lost:
                self.fail("account", f"{len(left)} too many for {pid}")
        return {pid: Life(parts) for pid, parts in out.items()}

    def all_accounts(self):
        return [acct for proc in sorted(self.world.cuda_watch, key=lambda p: p.born) for acct in self.truths.accounts_of(proc)]

    def check(self, records, explain=None):
        chains = [r for r in records if r.get("src") == "chain" and r.get("op") in FINDINGS]
        accounts = [r for r in records if r.get("src") == "chain" and r.get("op") == "account"]
        if not any(r.get("src") == "chain" and r.get("op") == "summary" for r in records):
            self.fail("crash", "no summary")
        for record in accounts:
            for text in reported.form(record):
                self.fail("account", text)
        truth = self.truth(accounts)
        for c in chains:
            if c.get("pid") not in truth:
                self.fail("false-alarm", f"{brief(c)} on a process that makes no CUDA calls")
            else:
                self.shape(c, truth[c["pid"]])
        for pid, life in truth.items():
            mine = [x for x in chains if x.get("pid") == pid]
            self.gap_chains(pid, life, [x for x in mine if x["op"] == "gap"])
            self.sums(pid, life, mine, [r for r in accounts if r.get("pid") == pid])
            self.call_chains(pid, life.calls, [x for x in mine if x["op"] == "slow_call"])
            self.others(pid, life, mine)
            self.fails += [("host-calls", t) for t in verdicts.host_calls(self.s, life, mine)]
            self.fails += [("launch-bound", t) for t in verdicts.launch_bound(self.s, life, mine)]
            if self.s.sampling:
                self.fails += [("sampled", t) for t in verdicts.sampled(self.s, life, mine)]
            if explain and life.exact:
                self.fails += [("kept", t) for t in verdicts.kept(life, mine, self.world.base, explain)]
        return self.fails

    def shape(self, c, life):
        """What must hold in a finding whatever is true."""
        lost = c.get("lost_ns", 0)
        total = sum(x.get("ns", 0) for x in c.get("causes", [])) + c.get("unexplained_ns", 0)
        if c["op"] == "drop":
            self.fail("shape", f"{brief(c)}: there are no drops any more")
        if total != lost and c["op"] in ("gap", "slow_call", "stall"):
            self.fail("sum", f"{brief(c)}: causes and unexplained make {total}, lost_ns is {lost}")
        self.share(c, life, lost)
        grid = c.get("grid")
        grid = grid.get("lost_ns") if isinstance(grid, dict) else grid
        if isinstance(grid, list) and (len(grid) > 100 or sum(grid) != lost):
            self.fail("sum", f"{brief(c)}: the grid of {len(grid)} makes {sum(grid)}, lost_ns is {lost}")
        order = [x["ns"] for x in c.get("causes", [])]
        if order != sorted(order, reverse=True):
            self.fail("first", f"{brief(c)}: causes are not in order")
        for x in c.get("causes", []):
            if sum(w.get("ns", 0) for w in x.get("who", [])) > x["ns"]:
                self.fail("who", f"{brief(c)}: {x['cause']} {x['ns']} is less than its who {x['who']}")
            if not x.get("who") and x["cause"] not in ("blocked", "driver_cpu", "cpu_wait", "worker_cpu_wait", "off_cpu") and c["op"] == "gap":
                self.fail("who", f"{brief(c)}: nobody went through its {x['cause']}")
            if x["cause"] == "cuda_call" and x["ns"] > 0.1 * lost and not ({"ops", "where"} & set(x)):
                self.fail("cause", f"{brief(c)}: cuda_call does not say which calls")
        if self.s.healthy and c.get("severity") in ALARM and c["op"] not in ("gap", "host_calls"):
            self.fail("false-alarm", f"{brief(c)} in a healthy run")  # gaps: by the truth of them

    def share(self, c, life, lost):
        """A share is one of the loop."""
        share = c.get("lost_share")
        if c["op"] in ("launch_bound", "oom") and not lost:
            return
        right = [lost / ns for ns in life.loops if ns]
        if share is None or right and all(abs(share - r) > 0.01 * r + 0.001 for r in right):
            self.fail("severity", f"{brief(c)}: lost_share {share}, should be {' or '.join(f'{r:.4f}' for r in right)}")
            return
        # what cannot have been a wait for the GPU counts by itself
        counts = share * (1 - c.get("gpu_wait_ns", 0) / lost) if c.get("gpu_wait_ns", 0) > lost / 2 else share
        want = "high" if counts >= 0.2 else "medium" if counts >= 0.05 else "low"
        if c["op"] in ("host_calls", "launch_bound"):
            if SEVERITIES.index(c.get("severity")) > SEVERITIES.index(want):
                self.fail("severity", f"{brief(c)}: {c.get('severity')} at a share of {share}")
            return
        quiet = c["op"] == "slow_call" or c["op"] == "stall" and lost < STALL_NS
        if c.get("severity") != want and not (quiet and c.get("severity") == "low"):
            self.fail("severity", f"{brief(c)}: {c.get('severity')} at a share of {share}")

    # ---- the families

    def gap_chains(self, pid, life, chains):
        # where calls were lost, the one that ends a gap may be another than in truth
        fog = any(name == "cuda" for name, *_ in self.world.declared)
        named = all("call" in c for c in chains) and not fog
        for op in set(life.by_op) | {c.get("call") for c in chains} if named else ():
            b = life.by_op.get(op, bounds.Bounds())
            mine = [c for c in chains if c.get("call") == op]
            if op is None:
                b.lost[0] = 0
            self.compare(f"gaps of {pid} before {op}", b, mine, 0, exact=life.exact)
            if b.lost[0] and mine and life.exact:
                self.details(b, mine)
        if not named:
            total = bounds.Bounds()
            for b in life.by_op.values():
                total.add(b)
            if fog:
                total.n[0] = total.lost[0] = 0  # checked by the sums
            self.compare(f"gaps of {pid}", total, chains, 0)

    def details(self, b, mine):
        """proven, and the longest occurrence."""
        idle = sum(c.get("proven_ns", 0) for c in mine)
        if not b.idle[0] - SLACK_NS <= idle <= b.idle[1] + SLACK_NS:
            self.fail("proven", f"{brief(mine[0])}: proven_ns {idle}, should be {b.idle[0]}..{b.idle[1]}")
        if len(mine) > 1:
            return
        if b.idle[0] == b.lost[1] and mine[0].get("proven") is not True:
            self.fail("proven", f"{brief(mine[0])}: the GPU is known to be idle in all of it, proven is {mine[0].get('proven')}")
        if not b.idle[1] and mine[0].get("proven") is True:
            self.fail("proven", f"{brief(mine[0])}: proven, but nothing says that the GPU was idle")
        if not b.longest[0] - SLACK_NS <= mine[0].get("max_ns", 0) <= b.longest[1] + SLACK_NS and not b.mixed:
            self.fail("n", f"{brief(mine[0])}: the longest is {mine[0].get('max_ns')}, should be {b.longest[0]}..{b.longest[1]}")

    def sums(self, pid, life, mine, accounts):
        """Findings, account and truth beside each other: nothing twice, nothing in neither."""
        found = sum(c["lost_ns"] for c in mine if c["op"] == "gap")
        said = sum(reported.own(r).get(name, 0) for r in accounts for name in LOST)
        if accounts and found > said:
            self.fail("sum", f"gaps of {pid} make {found}, the account has {said} of idle and silence")
        if self.world.killed == "cuda":
            return
        for p in life.parts:
            least, most = p.acct.lost(p.loop_from)
            if p.record and len(life.parts) == 1 and said > most + SLACK_NS:
                self.fail("lost", f"idle and silence of {pid}: {said}, at most {most} is true")
            # a group of less than one percent need not be told of
            kinds = len(p.by_op) + 1
            if life.exact and len(life.parts) == 1 and found < least - 0.012 * p.loop_ns * kinds - SLACK_NS:
                self.fail("missed", f"gaps of {pid} make {found}, at least {least} is lost: {[brief(c) for c in mine]}")

    def call_chains(self, pid, by_op, chains):
        for op in set(by_op) | {c.get("call") for c in chains}:
            mine = [c for c in chains if c.get("call") == op]
            warm, every = by_op.get(op, (bounds.Bounds(), bounds.Bounds()))
            # a synchronise that waits for a busy GPU is no host fault: it may be played down
            loud = [c for c in mine if c.get("severity") in ALARM or op in SYNCHRONISE]
            if warm.lost[0]:
                self.compare(f"slow {op} of {pid}", warm.up_to(every), mine, warm.slack)
            elif loud:
                self.compare(f"slow {op} of {pid}", warm, loud, warm.slack)
            elif mine:
                self.compare(f"slow {op} of {pid} (low)", every, mine, every.slack)

    def others(self, pid, life, chains):
        """stall and period: only what is beyond doubt."""
        # in a group of calls, what follows the last one
        acct = life.parts[-1].acct
        last = max([c.end if c.end is not None else acct.end for c in acct.calls] or [acct.end])
        tail_ns = acct.end - last
        hung = [c for p in life.parts for c in p.acct.calls if c.end is None and c.attrs.get("count")]
        loud = [c for c in chains if c.get("severity") in ALARM]
        if hung and not self.world.lost:
            length = self.world.end - hung[0].start
            if length > 0.06 * life.loop_ns and length > STALL_NS:
                ok = [c for c in loud if c["op"] in ("stall", "slow_call") and abs(c["lost_ns"] - length) <= 0.02 * length]
                if not ok:
                    self.fail("missed", f"a call of {pid} hung for {length} ns: {[brief(c) for c in loud]}")
                elif any(x["cause"] != "blocked" and x["ns"] > 0.01 * length for x in ok[0].get("causes", [])):
                    self.fail("cause", f"{brief(ok[0])}: {ok[0]['causes']} for a call asleep")
        if self.s.kind == "stalled" and tail_ns > STALL_NS and not self.world.lost and not self.world.killed:
            near = [c for c in loud if abs(c["lost_ns"] - tail_ns) <= 0.02 * tail_ns]
            if not near:
                self.fail("missed", f"{pid} made no call for the last {tail_ns} ns: {[brief(c) for c in loud]}")
            for c in near:
                tail = [g for g in life.gaps if g.call is None and g.end == acct.end]
                b = bounds.of_gaps(tail, 1)[None]
                self.compare(f"stall of {pid}", b, [c], 0)
        if self.s.hung and hung and not [c for c in chains if c["op"] == "stall"]:
            self.fail("missed", f"a call of {pid} hung for {self.world.end - hung[0].start} ns at the end: {[brief(c) for c in chains]}")
        if self.s.periodic and life.exact:
            self.period(pid, life.gaps, [c for c in loud if c["op"] == "gap"])
        for c in loud:
            if c["op"] == "stall" and self.world.killed == "cuda":
                self.fail("false-alarm", f"{brief(c)}: its tracer was killed")
            elif c["op"] == "stall" and not hung and tail_ns < 0.05 * self.wall:
                self.fail("false-alarm", f"{brief(c)}: its last call is {tail_ns} ns before the end")

    def period(self, pid, found, loud):
        """By the time lost: short waits between the long ones hide no rhythm."""
        long, every = rhythm(found)
        if not every:
            return
        heavy = sum(g.ns for g in long)
        for c in loud:
            said = (c.get("period") or {}).get("ns", 0)
            mine = {op for g in long for op in g.ops}
            if mine == {c.get("call")} and heavy >= 0.9 * c["lost_ns"] and not 0.9 * every[0] <= said <= 1.1 * every[-1]:
                self.fail("period", f"{brief(c)}: period {c.get('period')}, should be {every[0]}..{every[-1]}")

    # ---- one comparison

    def compare(self, what, b, chains, slack, exact=False):
        tol = b.tolerance()
        sharp = SLACK_NS if exact else tol
        lost = sum(c["lost_ns"] for c in chains)
        n = sum(c.get("n", 0) for c in chains)
        if not chains:
            if b.lost[0]:
                self.fail("missed", f"{what}: at least {b.lost[0]} ns lost, nothing reported")
            return
        if lost < b.lost[0] - sharp or lost > b.lost[1] + sharp:
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
                if ns > true.get(pid, 0) + b.wild + tol:
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


def check(scenario, joined, chained, explain=None):
    checker = Checker(scenario)
    fails = []
    for i, text in enumerate(hosts.check(scenario.world, parse(joined, "ingero-join", fails))):
        if i < 3:
            fails.append(("host", text))
    fails += checker.check(parse(chained, "ingero-chain", fails), explain)
    return fails
