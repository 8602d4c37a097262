"""What really happened: the causes of lost time along critical paths, calls with what was slow in them.

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

from account import LOST, SYNCHRONISE, is_memory_or_load, is_work
from engine import DISK, QUOTA, RQ, RUN, SLEEP
from world import ANY as EVERYTHING

IDLE = frozenset(["idle"])

RENEWED_NS = 300_000  # a thread that runs for less between two sleeps may have been in one wait
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

    def renewed(self, th, seg):
        """The thread that ends a wait at last, where a time-out ends this sleep and the next one begins at once."""
        i = bisect_right(self.starts[th], seg.start)
        awake = 0
        for later in th.segs[i:i + 400]:
            if later.kind == SLEEP:
                if later.waker is not None:
                    return later.waker
                awake = 0
            elif later.kind == RUN:
                awake += (later.end or later.start) - later.start
            if awake > RENEWED_NS:
                return None
        return None

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
        if waker is None and seg.timed:
            waker = self.renewed(th, seg)
        asleep = seg.end is None or seg.end >= min(self.world.end, self.world.sched_end)
        if waker is None or asleep:
            causes = ["sleep"]
            if asleep:
                causes += ["wait", "unexplained"]  # nobody had woken it when the tracer stopped
            if party == OTHER and th.proc in self.world.cuda_watch:
                causes += ["wait", "blocked"]  # it may be inside a CUDA call of its own
            renewed = self.renewed(th, seg)
            if renewed:
                # it sleeps again at once: one wait, and whoever ends it at last is what it was for
                causes += [*EVERYTHING]
            parts.append(Part(a, ns, causes, {th.proc.pid: ns, **({renewed.proc.pid: ns} if renewed else {})}))
        elif waker.proc is th.proc:
            self.walk(waker, a, b, party, home, parts)
        elif party == OTHER and waker.proc is home:
            # the worker waits for a thread of the process that waits for it: what that did, or `wait` by name
            first = len(parts)
            self.walk(waker, a, b, BACK, home, parts)
            for p in parts[first:]:
                p.causes |= {"wait", "host_cpu", "cpu_wait", "io_wait", "sleep", "quota", "unexplained"}
                for pid in (home.pid, th.proc.pid):
                    p.who.setdefault(pid, p.ns)
        elif waker.proc in self.world.sched_watch:
            # through any number of processes
            self.walk(waker, a, b, OTHER, home, parts)
        else:
            parts.append(Part(a, ns, ["wait"], {waker.proc.pid: ns}))


class Gap:
    """Lost time in one piece: an idleness from the drain to the next work, or a long time between calls."""

    def __init__(self, start, end, call, must, pieces=1):
        self.start, self.end, self.call, self.must, self.pieces = start, end, call, must, pieces
        self.parts, self.idle, self.ops = [], (0, 0), {call.op if call else None}
        self.open = call is None

    @property
    def ns(self):
        return self.end - self.start


TRIFLE_NS = 20_000  # of what is not certainly lost, this is too short to be asked about


def gaps(world, proc, paths, acct, loop_from):
    """What the account has as `idle` or `silence` from the beginning of the loop on."""
    out, run = [], []

    def idleness():
        if run:
            end = run[-1].end
            out.append(gap(world, paths, acct, run, max(run[0].start, loop_from), acct.next_work(end), True))
            run.clear()

    for s in acct.stretches:
        if s.end <= loop_from:
            continue
        if s.classes == IDLE:
            run.append(s)
            continue
        idleness()
        if s.classes & LOST and (s.ns >= TRIFLE_NS or s.classes <= LOST):
            out.append(gap(world, paths, acct, [s], max(s.start, loop_from), s.next, s.classes <= LOST))
    idleness()
    return out


def gap(world, paths, acct, stretches, start, call, must):
    end = stretches[-1].end
    g = Gap(start, end, call, must, len(stretches))
    sure = all(s.classes == IDLE for s in stretches)
    g.idle = (g.ns if sure else 0, g.ns if all("idle" in s.classes for s in stretches) else 0)
    if not sure and (g.idle[1] or call is not None and not is_work(call)):
        # by the call that ends the silence, or by the work that the GPU waited for
        work = acct.next_work(end)
        g.ops.add(work.op if work else None)
    for s in stretches:
        first = len(g.parts)
        lo = max(s.start, start)
        if lo < s.end:
            piece(world, paths, acct, s, lo, call, g.parts)
        if world.touched(s.start, s.end):
            for p in g.parts[first:]:
                p.causes |= {"unexplained"}
    return g


def piece(world, paths, acct, s, lo, call, parts):
    """The causes of one stretch: those of the thread that makes the next call."""
    nxt = s.next or call
    th = call.th if call else acct.calls[-1].th
    mine = [c for c in s.calls if c.th is th]
    if mine:
        for seg, a, b in paths.segs(th, lo, s.end):
            parts.append(Part(a, b - a, in_idle_call(world, paths, mine[0], seg, a, b), {th.proc.pid: b - a}))
            missing = world.sched_watch.get(th.proc)
            if missing is None or a < missing or b > world.sched_end:
                parts[-1].causes |= EVERYTHING
        return
    first = len(parts)
    paths.walk(th, lo, s.end, OWN, acct.proc, parts)
    if s.calls or nxt is not None and nxt.th is not th or acct.callers > 1:
        # another thread of the process calls meanwhile, or next
        for p in parts[first:]:
            p.causes |= EVERYTHING


def in_idle_call(world, paths, call, seg, a, b):
    """Inside a call that gives the GPU nothing to do, while it has nothing to do: off the CPU as anywhere, else the call."""
    unknown = world.unknown(call.th, seg)
    if unknown:
        return [*unknown, "cuda_call"]
    if seg.kind == RUN:
        own = ["cuda_call"] if is_memory_or_load(call) else ["cuda_call", "host_cpu", "driver_cpu", "spin"]
        return own + (["steal"] if world.stolen(a, b) else [])
    if seg.kind == SLEEP:
        return ["cuda_call", "blocked", "sleep", "wait", "unexplained"]
    inner = []
    paths.part(call.th, seg, a, b, OWN, call.th.proc, inner)
    return inner[0].causes


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
                kinds = ["driver_cpu"] + (["steal"] if world.stolen(a, b) else [])
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
        if SYNCHRONISE.get(c.op) in ("all", "stream"):
            n = 0
        elif "Launch" in c.op or c.op.endswith("Async"):
            out[c] = n
            n += 1
    return out


FULL_FROM = 500  # about half of what fits into a queue


def slow_calls(world, proc, paths, acct, loop_from):
    groups, queued = {}, outstanding(acct.calls)
    idle = acct.idle_in_calls()
    for c in acct.calls:
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
        # Where calls are of two lengths, about as many of each, some more of the first steps decide which one is the median.
        most = warm[len(warm) * 6 // 10]
        for c in calls:
            ns = c.end - c.start
            if idle.get(c, 0) > ns // 20:
                continue  # the GPU had nothing to do: that is idle, and no slow call too
            if ns <= 2 * s.median or ns <= s.median + 60_000:
                continue
            sure = not c.warmup and not c.cold and c.start >= loop_from and len(warm) >= 30 and ns > 4 * most and ns > most + 300_000
            if world.touched(c.start, c.end) or queued.get(c, 0) >= FULL_FROM:
                sure = False
            (s.must if sure else s.may).append((c, ns, in_call(world, paths, c)))
        out.append(s)
    return out
