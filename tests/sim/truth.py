"""What really happened: gaps with their critical paths, calls with what was slow in them.

The truth comes from the machine's own history, never from records. Where the
contract (SCHEMA.md) leaves a choice, or where records that would be needed were
lost or never written, a part carries several allowed names; the checker then
works with bounds: a cause may get what only it explains, up to all that it may
explain.

A sleep is followed to the thread that ended it, over that same stretch:

    main    |run 2| S (woken by feeder) ........................ |      gap 0-20
    feeder           born at 14 by worker |run 1| S (by worker) |run 1|
    worker           |D 6 .....|run 8 ...................|

    0-2 host_cpu; 2-20 is the feeder's: 15-19 asleep, so the worker's 15-19; before its
    birth the worker's 2-14. All of it is another process: 6 worker_io, 12 worker_cpu.
"""

from bisect import bisect_right

from engine import DISK, QUOTA, RQ, RUN, SLEEP

OWN, OTHER, BACK = 0, 1, 2  # BACK: a thread of the process that lost the time, for which the other one waited


class Part:
    """A stretch of the waiting, the causes that may be given for it, and who is behind it."""

    __slots__ = ("ns", "causes", "who", "start", "pid")

    def __init__(self, start, ns, causes, who=None, pid=None):
        self.start, self.ns, self.causes = start, ns, frozenset(causes)
        self.who = who or {}  # pid -> ns that it may be blamed for
        self.pid = pid  # of the thread on the path, where `who` is those that kept it from its CPU

    def blamed(self, cause):
        return self.who if self.pid is None or cause.endswith("cpu_wait") else {self.pid: self.ns}


def name(cause, party):
    return cause if party != OTHER else {
        "host_cpu": "worker_cpu", "cpu_wait": "worker_cpu_wait", "quota": "worker_quota", "io_wait": "worker_io",
    }.get(cause, cause)


class Paths:
    def __init__(self, world):
        self.world = world
        self.starts = {}
        # times off the CPU in which the thread was throttled for a part: one record, no name for the parts
        self.throttled = {id(s.off) for p in world.sim.procs for th in p.threads for s in th.segs if s.kind == QUOTA and s.off is not None}

    def segs(self, th, lo, hi):
        """The thread's stretches within [lo, hi], clipped."""
        starts = self.starts.get(th)
        if starts is None:
            starts = self.starts[th] = [s.start for s in th.segs]
        i = max(0, bisect_right(starts, lo) - 1)
        while i < len(th.segs) and th.segs[i].start < hi:
            seg = th.segs[i]
            end = seg.end if seg.end is not None else hi
            a, b = max(lo, seg.start), min(hi, end)
            if a < b:
                yield seg, a, b
            i += 1

    def holders(self, seg, lo, hi, but):
        """Who was on the CPU in whose queue the thread waited: pid -> ns."""
        out = {}
        hist = self.world.cpu_hist[seg.cpu]
        i = max(0, bisect_right(hist, [lo]) - 1)
        while i < len(hist) and hist[i][0] < hi:
            a, b = max(lo, hist[i][0]), min(hi, hist[i][1])
            if a < b and hist[i][2] is not but:
                pid = hist[i][2].proc.pid
                out[pid] = out.get(pid, 0) + b - a
            i += 1
        return out

    def walk(self, th, lo, hi, party, home, parts):
        """Append to `parts` what explains [lo, hi] of this thread."""
        if lo >= hi:
            return
        if th.born > lo and th.creator is not None:
            cut = min(hi, th.born)
            maker = th.creator
            if maker.proc is th.proc:
                self.walk(maker, lo, cut, party, home, parts)
            elif maker.proc is home:
                # a process forked by the waiting one: back over the border, or "by name"?
                parts.append(Part(lo, cut - lo, ["host_cpu", "cpu_wait", "io_wait", "sleep", "quota", "wait", "unexplained"], {home.pid: cut - lo}))
            else:
                parts.append(Part(lo, cut - lo, ["wait", "unexplained"], {maker.proc.pid: cut - lo}))
            lo = cut
        stop, killed_in = self.world.sched_end, self.world.killed == "sched" and hi > self.world.sched_end
        if hi > stop:
            cut = max(lo, stop)
            causes = ["unexplained"] if party != OTHER else ["wait", "unexplained"]
            parts.append(Part(cut, hi - cut, causes, {th.proc.pid: hi - cut}))
            hi = cut
        watched = self.world.sched_watch.get(th.proc)
        if lo < hi and (watched is None or watched > lo):
            cut = hi if watched is None else min(hi, watched)
            known = min(cut, max(lo, self.world.known_from(th, watched)))
            causes = ["unexplained"] if party != OTHER else ["wait", "unexplained"]
            if known > lo:
                parts.append(Part(lo, known - lo, causes, {th.proc.pid: known - lo}))
            first = len(parts)
            for seg, a, b in self.segs(th, known, cut):
                self.part(th, seg, a, b, party, home, parts)
            for p in parts[first:]:
                p.causes |= frozenset(causes)
                p.who.setdefault(th.proc.pid, p.ns)
            lo = cut
        first = len(parts)
        for seg, a, b in self.segs(th, lo, hi):
            self.part(th, seg, a, b, party, home, parts)
        if killed_in:
            # no tracer was there to write what began after the thread's last record
            heard = self.world.last_heard(th)
            for p in parts[first:]:
                if p.start + p.ns > heard:
                    p.causes |= {"unexplained"} if party != OTHER else {"wait", "unexplained"}
                    p.who.setdefault(th.proc.pid, p.ns)

    def part(self, th, seg, a, b, party, home, parts):
        ns, pid = b - a, th.proc.pid
        unknown = self.world.unknown(th, seg)
        if unknown:
            parts.append(Part(a, ns, unknown, {pid: ns}))
        elif seg.kind == RUN:
            stolen = ["steal"] if self.world.stolen(a, b) else []
            parts.append(Part(a, ns, [name("host_cpu", party), *stolen], {pid: ns}))
        elif seg.kind == RQ:
            causes = [name("cpu_wait", party)]
            off = seg.off
            if seg.born and not (self.world.newborns and off is not None):
                # a new thread's wait for its first CPU may be in no record
                causes += [name("host_cpu", party), "unexplained"]
            if off is not None and id(off) in self.throttled:
                causes.append(name("quota", party))
            who = self.holders(seg, a, b, th)
            if off is not None:
                # what the record shows: who took the CPU, who had that on which it came back
                for shown in (off.by if off.state == "R" else None, off.prev):
                    if shown and shown[0]:
                        who[shown[0]] = ns
            parts.append(Part(a, ns, causes, who, pid))
        elif seg.kind == QUOTA:
            causes = [name("quota", party)]
            off = seg.off
            shown = [p for p in ((off.by, off.prev) if off else ()) if p and p[0]]
            if off is None or off.born:
                causes += [name("host_cpu", party), name("cpu_wait", party), "unexplained"]
            elif off.state != "R":
                # woken while throttled: the record has no name for it
                causes += ["unexplained"]
                if off.prev and off.prev[0]:
                    causes += [name("cpu_wait", party)]
            elif shown:
                causes += [name("cpu_wait", party)]
            parts.append(Part(a, ns, causes, {pid: ns, **{p[0]: ns for p in shown}}, pid))
        elif seg.kind == DISK:
            parts.append(Part(a, ns, [name("io_wait", party)], {pid: ns}))
        elif seg.kind == SLEEP:
            self.sleep(th, seg, a, b, party, home, parts)

    def sleep(self, th, seg, a, b, party, home, parts):
        waker, ns = seg.waker, b - a
        asleep = seg.end is None or seg.end >= min(self.world.end, self.world.sched_end)
        if waker is None or asleep:
            causes = ["sleep"]
            if asleep:
                causes += ["wait", "unexplained"]  # nobody had woken it when the tracer stopped
            if party == OTHER and th.proc in self.world.cuda_watch:
                causes += ["wait", "blocked"]  # it may be inside a CUDA call of its own
            parts.append(Part(a, ns, causes, {th.proc.pid: ns}))
        elif waker.proc is th.proc:
            self.walk(waker, a, b, party, home, parts)
        elif party == OWN and waker.proc in self.world.sched_watch:
            self.walk(waker, a, b, OTHER, home, parts)
        elif party == OTHER and waker.proc is home:
            # the worker waits for a thread of the process that waits for it: what that did, or `wait` by name
            first = len(parts)
            self.walk(waker, a, b, BACK, home, parts)
            for p in parts[first:]:
                p.causes |= {"wait", "host_cpu", "cpu_wait", "io_wait", "sleep", "quota", "unexplained"}
                for pid in (home.pid, th.proc.pid):
                    p.who.setdefault(pid, p.ns)
        else:
            parts.append(Part(a, ns, ["wait"], {waker.proc.pid: ns}))


class Gap:
    def __init__(self, start, end, call, last):
        self.start, self.end, self.call, self.last = start, end, call, last
        self.parts, self.must, self.drained, self.open = [], True, False, call is None

    @property
    def ns(self):
        return self.end - self.start


# Is the GPU idle when it returns? None: an event says nothing of what was enqueued after it.
DRAINS = {"cudaDeviceSynchronize": True, "cudaStreamSynchronize": True, "cudaEventSynchronize": None}


def shows_work(call):
    """Whether the GPU had something to do until this call began, as the call itself tells."""
    if call.op.endswith("Query"):
        return call.attrs.get("ret") == 600
    return call.op in DRAINS and call.end is not None and call.end - call.start > 2_000_000 and not call.nested


def gaps(world, proc, paths):
    """Stretches in which no call of the process was in flight, longest-lived facts first."""
    calls = sorted(world.seen_calls(proc), key=lambda c: c.start)
    out, last_end, last, drained = [], None, None, False
    for c in calls:
        if last_end is not None and any(last_end <= at <= c.start for at in proc.execs):
            last_end = None  # another program: its first call
        if last_end is not None and c.start > last_end and not shows_work(c):
            out.append(gap(world, proc, paths, last_end, c.start, c, last, drained))
        if last_end is None or (c.end or world.end) >= last_end:
            last_end, last = c.end or world.end, c
        drained = DRAINS.get(c.op, False) if c.end is not None else False
    if last_end is not None:
        end = min(world.end, proc.died or world.end)
        if end > last_end:
            out.append(gap(world, proc, paths, last_end, end, None, last, drained))
    return out


def gap(world, proc, paths, start, end, call, last, drained):
    g = Gap(start, end, call, last)
    g.drained = drained
    if g.ns < 200_000:
        return g
    th = call.th if call else last.th
    paths.walk(th, start, end, OWN, proc, g.parts)
    if call is None or last.warmup or call.warmup or call.op.endswith("Query"):
        g.must = False
    if world.touched(start, end):
        g.must = False
        for p in g.parts:
            p.causes |= {"unexplained"}
    return g


class Slow:
    """One group of calls: what was lost in the slow ones."""

    def __init__(self, proc, op, attrs):
        self.proc, self.op, self.attrs = proc, op, attrs
        self.median, self.must, self.may, self.calls = 0, [], [], 0


def in_call(world, paths, c):
    """What the calling thread did inside the call: cause -> (least, most) ns, and who had its CPU."""
    out, who = {}, {}
    watched = world.sched_watch.get(c.th.proc, world.end)
    known = world.known_from(c.th, watched)  # an interval across the watch may be written in full
    lossy = world.touched(c.start, c.end if c.end is not None else world.end)
    for seg, a, b in paths.segs(c.th, c.start, c.end if c.end is not None else world.end):
        kinds = world.unknown(c.th, seg)
        if a < min(watched, known) or b > world.sched_end:
            kinds = ["unexplained", "blocked", "driver_cpu", "cpu_wait", "io_wait", "quota"] if b > watched and a < world.sched_end else ["unexplained"]
        elif not kinds:
            if seg.kind == SLEEP:
                kinds = ["blocked"]
            elif seg.kind == RUN:
                kinds = ["driver_cpu"]
            else:
                parts = []
                paths.part(c.th, seg, a, b, OWN, c.th.proc, parts)
                kinds = list(parts[0].causes)
                for pid, ns in parts[0].who.items():
                    who[pid] = who.get(pid, 0) + ns
        else:
            kinds = [{"host_cpu": "driver_cpu", "sleep": "blocked", "wait": "blocked"}.get(k, k) for k in kinds]
        if lossy or a < watched:
            kinds = [*kinds, "unexplained"]
        for k in kinds:
            low, high = out.get(k, (0, 0))
            out[k] = (low + (b - a if len(kinds) == 1 else 0), high + b - a)
    return out, who


def outstanding(calls):
    """For each call that enqueues, how many operations may be outstanding when it begins: since the last wait for all."""
    out, n = {}, 0
    for c in sorted((c for c in calls if c.end is not None), key=lambda c: c.start):
        if DRAINS.get(c.op):
            n = 0
        elif "Launch" in c.op or c.op.endswith("Async"):
            out[c] = n
            n += 1
    return out


FULL_FROM = 500  # about half of what fits into a queue


def slow_calls(world, proc, paths):
    groups, queued = {}, outstanding(world.seen_calls(proc))
    for c in world.seen_calls(proc):
        if c.end is None:
            continue
        key = (c.op, c.attrs.get("dir"), c.attrs.get("bytes"))
        groups.setdefault(key, []).append(c)
    out = []
    for (op, direction, size), calls in groups.items():
        warm = sorted(c.end - c.start for c in calls if not c.warmup and not c.cold)
        if not warm:
            continue
        if len(warm) < 10:  # too few to say what is usual: with those of the first steps
            warm = sorted(c.end - c.start for c in calls if not c.cold)
        s = Slow(proc, op, {"dir": direction, "bytes": size})
        s.calls, s.median = len(calls), warm[(len(warm) - 1) // 2]
        for c in calls:
            ns = c.end - c.start
            if ns <= 2 * s.median or ns <= s.median + 60_000:
                continue
            sure = not c.warmup and not c.cold and len(warm) >= 30 and ns > 4 * s.median and ns > s.median + 300_000
            if world.touched(c.start, c.end) or queued.get(c, 0) >= FULL_FROM:
                sure = False
            (s.must if sure else s.may).append((c, ns, in_call(world, paths, c)))
        out.append(s)
    return out
