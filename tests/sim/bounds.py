"""Bounds for what a report may say, from the truth of the gaps and calls behind it.

`low` is what must be said (only this name explains it, and it is large enough to
be reported and named), `high` what may be said at most.
"""

import copy

from world import ANY as EVERYTHING

REPORTED = 0.015  # of the loop: more than "low" needs
NAMED = 0.12  # of the lost time: more than a cause needs to be named


class Bounds:
    def __init__(self):
        self.n, self.lost, self.causes, self.who = [0, 0], [0, 0], {}, {}
        self.slack = 0  # ns that the definition of the median or of a threshold leaves open
        self.mixed = False
        self.idle = [0, 0]  # ns in which the GPU is known to have nothing to do
        self.longest = [0, 0]
        self.wild = 0  # ns of which anything may be said

    def cause(self, name, low, high):
        c = self.causes.setdefault(name, [0, 0])
        c[0] += low
        c[1] += high

    def blame(self, name, who):
        w = self.who.setdefault(name, {})
        for pid, ns in who.items():
            w[pid] = w.get(pid, 0) + ns

    def settle(self, loop_ns):
        """Drop what need not be reported or named."""
        if self.lost[0] < REPORTED * loop_ns:
            self.n[0] = self.lost[0] = 0
            for c in self.causes.values():
                c[0] = 0
        spare = 0
        for name, c in self.causes.items():
            if name != "unexplained" and c[0] < NAMED * self.lost[1]:
                spare += c[1]
                c[0] = 0
        self.causes.setdefault("unexplained", [0, 0])[1] += spare
        self.causes["unexplained"][0] = 0

    def add(self, other):
        for mine, its in ((self.n, other.n), (self.lost, other.lost), (self.idle, other.idle)):
            mine[0] += its[0]
            mine[1] += its[1]
        self.longest = [max(a, b) for a, b in zip(self.longest, other.longest)]
        self.wild += other.wild
        self.mixed = self.mixed or other.mixed
        for name, (low, high) in other.causes.items():
            self.cause(name, low, high)
        for name, who in other.who.items():
            self.blame(name, who)
        self.slack += other.slack

    def up_to(self, other):
        """At least this, at most the other one."""
        both = copy.deepcopy(other)
        both.n[0], both.lost[0], both.slack = self.n[0], self.lost[0], max(self.slack, other.slack)
        both.lost[1], both.n[1] = max(self.lost[1], other.lost[1]), max(self.n[1], other.n[1])
        for name, (low, high) in self.causes.items():
            mine = both.causes.setdefault(name, [0, 0])
            both.causes[name] = [low, max(mine[1], high)]
        return both

    def tolerance(self):
        return max(1_000_000, int(0.02 * self.lost[1])) + self.slack


def of_gaps(gaps, loop_ns):
    """Bounds by the op of the call that ends the lost time; None: nothing ended it."""
    out = {}
    for g in gaps:
        for op in g.ops:
            sure = g.must and len(g.ops) == 1
            one_gap(out.setdefault(op, Bounds()), g, sure)
    for b in out.values():
        b.settle(loop_ns)
    return out


def one_gap(b, g, sure):
    b.n[0] += sure
    b.n[1] += g.pieces
    b.lost[0] += g.ns if sure else 0
    b.lost[1] += g.ns
    b.idle[0] += g.idle[0] if sure else 0
    b.idle[1] += g.idle[1]
    b.longest = [max(b.longest[0], g.ns if sure else 0), max(b.longest[1], g.ns)]
    b.mixed = b.mixed or not sure
    for p in g.parts:
        wild = p.causes >= EVERYTHING
        b.wild += p.ns if wild else 0
        for name in p.causes:
            b.cause(name, p.ns if sure and len(p.causes) == 1 else 0, p.ns)
            if not wild:
                b.blame(name, p.blamed(name))
        if len(p.causes) > 1:
            b.mixed = True


def of_calls(groups, loop_ns):
    """Bounds by op: (without cold calls, with them)."""
    out = {}
    for s in groups:
        warm, every = out.setdefault(s.op, (Bounds(), Bounds()))
        one = Bounds()
        for sure, calls in ((True, s.must), (False, s.may)):
            for call, ns, (inside, who) in calls:
                for b in [every] + ([] if call.cold else [one]):
                    low = sure and b is one
                    b.n[0] += low
                    b.n[1] += 1
                    b.lost[0] += ns - s.median if low else 0
                    b.lost[1] += ns
                    b.slack += s.median // 8
                    b.blame("cpu_wait", who)
                    for name, value in inside.items():
                        b.cause(name, max(0, value[0] - s.median) if low else 0, value[1])
        one.settle(loop_ns)
        warm.add(one)
    return out
