"""The account of a CUDA process: in which class each of its nanoseconds is.

Built from the calls that the process really made, by the definitions of the
record contract alone: where these leave a choice, or where the records that
would decide it are missing, a stretch carries several classes, and the checker
works with bounds. Where a stretch has one class, a report must have it there to
the nanosecond.

    call     |launch|      |synchronise ......|        |malloc|      |launch|
    class     enqueue between   gpu_wait        idle    idle    idle  enqueue
    drained                                   T.........................

A synchronise waits for what was enqueued before it began, on its stream or on all
of them. When nothing is left, the GPU has nothing to do until the next call that
gives it some: what happens meanwhile, in calls or between them, is `idle`.

Only one stretch at the front is `start_up`, and only one at the end `wind_down`;
a report says how long they are, so they are checked for being possible, and the
other classes for what is left between them.
"""

from bisect import bisect_left

CLASSES = ("start_up", "idle", "silence", "gpu_wait", "enqueue", "copy", "memory", "load", "other_call", "between", "wind_down", "not_judged")
LOST = frozenset(["idle", "silence"])
ANY = frozenset(CLASSES)

# Time between calls while the GPU may have work: below the first `between`, from the second on `silence`.
SHORT_NS, LONG_NS = 200_000, 8_000_000
SHOWN_NS = 50_000  # a synchronise that waited for so long shows that the GPU had work when it began
FAST_COPY_NS = 100_000  # an asynchronous copy that returns sooner has not waited for its bytes
PAGEABLE_NS = 1_000_000  # a copy from or to the host that takes so long, at the speed of a host, is a pageable one

SYNCHRONISE = {"cudaDeviceSynchronize": "all", "cudaStreamSynchronize": "stream", "cudaEventSynchronize": "event"}
QUERY = ("cudaStreamQuery", "cudaEventQuery")
NOT_READY = 600
MEMORY = ("cudaMalloc", "cudaFree", "cudaHostAlloc", "cudaFreeHost", "cudaHostRegister", "cudaHostUnregister", "cuMemAlloc", "cuMemFree")
LOAD = ("cuLibraryLoadData", "cuLibraryUnload", "cuModuleLoadData", "cuModuleLoadDataEx")


def is_work(call):
    """Does this call give the GPU something to do? Not while it is captured into a graph."""
    return call.capture is None and looks_like_work(call)


def looks_like_work(call):
    return "Launch" in call.op or "Memcpy" in call.op or "Memset" in call.op or call.op.startswith("nccl")


def is_wait(call):
    return call.op in SYNCHRONISE or call.op in QUERY


def is_memory_or_load(call):
    return call.op in MEMORY or call.op in LOAD


def host_speed(call):
    """Can this copy have taken its time for bringing pageable memory over: 1 to 12 GB/s?"""
    size, ns = call.attrs.get("bytes", 0), (call.end or call.start) - call.start
    return call.attrs.get("dir") in ("h2d", "d2h") and size // 12 <= ns <= size


def is_pageable(call):
    return "Memcpy" in call.op and host_speed(call) and call.end - call.start >= PAGEABLE_NS


def classes_of(call, drained=None):
    """The classes that the time in this call may have while the GPU may have work; `drained`: had it none before this call?"""
    if call.op in SYNCHRONISE:
        kinds = {"gpu_wait"}
    elif call.op in QUERY:
        kinds = {"gpu_wait", "other_call"}
    elif call.op in MEMORY:
        kinds = {"memory"}
    elif call.op in LOAD:
        kinds = {"load"}
    elif call.op.startswith("cudaMemcpy"):
        kinds = classes_of_copy(call, drained)
    elif call.op.startswith("nccl"):
        kinds = {"enqueue", "other_call"}
    elif looks_like_work(call):
        kinds = {"enqueue"} if call.capture is None else {"enqueue", "other_call"}
    else:
        kinds = {"other_call"}
    if call.cold:
        # a kernel that is launched for the first time and takes a thousand times as long is being loaded
        first = call.end is not None and "Launch" in call.op and call.end - call.start >= 5_000_000
        kinds = {"load"} if first else kinds | {"load"}
    return frozenset(kinds | (ANY if call.end is None else set()))


def classes_of_copy(call, drained):
    """A copy that returns when it is done may have waited for what was enqueued before it."""
    waits = set() if drained is True else {"gpu_wait"}
    if call.op == "cudaMemcpy" or call.end is not None and is_pageable(call):
        return {"copy"} | waits
    if call.attrs.get("dir") in ("h2d", "d2h") and (call.end is None or call.end - call.start > FAST_COPY_NS):
        return {"enqueue", "copy"} | waits
    return {"enqueue"}


class Stretch:
    """[start, end) with the same calls in flight: its possible classes, and the call that ends it or, if idle, the idleness."""

    __slots__ = ("start", "end", "classes", "drained", "calls", "next")

    def __init__(self, start, end, classes, drained, calls):
        self.start, self.end, self.classes, self.drained, self.calls = start, end, classes, drained, calls
        self.next = None

    @property
    def ns(self):
        return self.end - self.start


class Outstanding:
    """What the GPU may still have to do. `empty`: True, False, or None where that is not on record."""

    def __init__(self, known):
        self.streams = {}  # stream -> calls that nobody has waited for
        self.unsure = {} if known else {"?": []}  # stream -> those of which it is not known

    @property
    def empty(self):
        return False if self.streams else None if self.unsure else True

    def forget(self):
        """Records are missing: nothing is known until the next wait for all."""
        self.unsure.setdefault("?", [])

    def enqueued(self, call):
        self.streams.setdefault(call.attrs.get("stream", "0x0"), []).append(call)

    def waited(self, call, stream=None, unsure=False):
        """A wait has returned: for one stream, or for all of them."""
        for name in [n for n in self.streams if stream in (None, n)]:
            left = []
            for work in self.streams[name]:
                if work.end is None or work.end > call.start and work is not call:
                    (left if work.start >= call.start else self.unsure.setdefault(name, [])).append(work)
                elif unsure:
                    self.unsure.setdefault(name, []).append(work)
            self.streams[name] = left
            if not left:
                del self.streams[name]
        if not unsure:
            for name in [n for n in self.unsure if stream in (None, n) or n == "?"]:
                left = [w for w in self.unsure[name] if w.end is None or w.end > call.start and w is not call]
                if left:
                    self.unsure[name] = left
                else:
                    del self.unsure[name]

    def returned(self, call):
        how = SYNCHRONISE.get(call.op)
        if how == "all":
            self.waited(call)
        elif how == "stream":
            self.waited(call, call.attrs.get("stream", "0x0"))
        elif how == "event" or call.op in QUERY and call.attrs.get("ret", 0) == 0:
            self.waited(call, unsure=True)
        elif call.op == "cudaMemcpy":
            stream = call.attrs.get("stream", "0x0")
            self.waited(call, stream)
            if self.streams:
                self.waited(call, unsure=True)  # streams that wait for the default one, or do not
        elif is_work(call) and call.end is not None and "copy" in classes_of(call):
            self.waited(call, unsure=True)  # a pageable copy is over when it returns


def programs(world, proc):
    """[from, to] of each program that the process was while it was watched: it starts again where it becomes another one."""
    edges = [world.cuda_watch[proc], *proc.execs, min(proc.died if proc.died is not None else world.end, world.end)]
    return list(zip(edges, edges[1:]))


class Account:
    def __init__(self, world, proc, since, until):
        self.world, self.proc = world, proc
        self.start, self.end = since, until
        self.before = {}  # call that enqueues -> whether the GPU had nothing to do before it
        self.seen_start = proc.born >= world.start or since > world.cuda_watch[proc]
        self.calls = sorted((c for c in world.seen_calls(proc) if since <= c.start < until), key=lambda c: c.start)
        self.callers = len({c.th for c in self.calls})
        # Of a recording that begins in the middle, nobody knows whether the first call of a kind is the process's first one.
        firsts = {(c.op, c.attrs.get("func")): c for c in reversed(self.calls)}
        self.maybe_cold = set() if self.seen_start else set(firsts.values())
        # exact: everything that is needed for the account is on record
        self.exact = bool(self.calls) and world.killed != "cuda" and self.end_on_record()
        self.fog = [(a, b) for name, a, b in world.declared if name == "cuda"]
        self.spans = self.widened()
        self.stretches = list(self.made()) if self.calls else []
        self.work = [c for c in self.calls if is_work(c)]
        self.limits()
        self.at_the_end()

    def end_on_record(self):
        proc, world = self.proc, self.world
        if self.end >= world.end:
            return True
        watched = world.sched_watch.get(proc)
        return watched is not None and watched < self.end <= world.sched_end and world.killed != "sched"

    def widened(self):
        """Where the cuda stream lost records, from the last call before to the first one after that were written."""
        written = [c for c in self.calls if id(c) in self.world.written]
        out = []
        for a, b in self.fog:
            before = max([c.end or self.end for c in written if (c.end or self.end) <= a] or [self.start])
            after = min([c.start for c in written if c.start >= b] or [self.end])
            out.append((before, after))
        # Whether a call was captured cannot be known where the beginning or the end of the capture is not on record.
        captures = {c.capture for c in self.calls if c.capture is not None}
        ids = {id(c) for c in written}
        for begin in captures:
            inside = [c for c in self.calls if c.capture is begin]
            end = next((c for c in self.calls if c.start >= inside[-1].start and c.op == "cudaStreamEndCapture"), None)
            if id(begin) not in ids or end is None or id(end) not in ids:
                drain = next((c for c in self.calls if c.start > inside[-1].start and c.op in SYNCHRONISE and id(c) in ids), None)
                out.append((begin.start, (drain.end if drain else None) or self.end))
        return sorted(out)

    def made(self):
        """The stretches, in order, without a hole."""
        edges = sorted([(c.end if c.end is not None else self.end, 0, i) for i, c in enumerate(self.calls)]
                       + [(c.start, 1, i) for i, c in enumerate(self.calls)])
        left, flight = Outstanding(self.seen_start), {}
        fogs, at, last = sorted(b for _, b in self.spans), self.start, None
        for when, begins, i in edges:
            when, call = min(when, self.end), self.calls[i]
            while fogs and fogs[0] <= when:
                left.forget()
                fogs.pop(0)
            if when > at:
                yield self.stretch(at, when, left.empty, flight, call if begins else None, last)
                at = when
            if begins:
                flight[i] = call
                if is_work(call):
                    self.before[call] = left.empty
                    left.enqueued(call)
            else:
                flight.pop(i, None)
                last = call
                if call.end is not None:
                    left.returned(call)
        if self.end > at:
            yield self.stretch(at, self.end, left.empty, flight, None, last)

    def stretch(self, start, end, drained, flight, nxt, last):
        calls = list(flight.values())
        s = Stretch(start, end, frozenset(), drained, calls)
        s.next = nxt
        fed = [c for c in calls if is_work(c)]

        def may_be(call, drained=None):
            return classes_of(call, drained) | ({"load"} if call in self.maybe_cold and looks_like_work(call) else set())

        if any(a < end and b > start for a, b in self.spans):
            s.classes = ANY
        elif fed:
            s.classes = frozenset().union(*(may_be(c, self.before.get(c)) for c in calls))
        elif drained is True:
            s.classes = frozenset(["idle"])
        elif calls:
            s.classes = frozenset().union(*(classes_of(c) for c in calls), ["idle"] if drained is None else [])
        else:
            s.classes = self.quiet(s, drained, nxt, last)
        return s

    def quiet(self, s, drained, nxt, last):
        """Nobody is in a call, and the GPU may have work."""
        out = {"idle"} if drained is None else set()
        if nxt is not None and self.shows_work(nxt):
            out |= {"between", "gpu_wait"}
            if nxt.op in SYNCHRONISE and nxt.end - nxt.start < 2_000_000 and s.ns >= SHORT_NS:
                out |= {"silence"}
        else:
            out |= {"between"} if s.ns < LONG_NS else set()
            out |= {"silence"} if s.ns >= SHORT_NS else set()
            if nxt is not None and nxt.op in QUERY or last is not None and last.op in QUERY:
                out |= {"between", "gpu_wait"}
        if last is None:
            out |= {"idle", "silence", "between", "not_judged"}  # nothing is known yet
        return frozenset(out)

    @staticmethod
    def shows_work(call):
        """Whether the GPU had something to do until this call began, as the call itself tells."""
        if call.op in QUERY:
            return call.attrs.get("ret") == NOT_READY
        return call.op in SYNCHRONISE and call.end is not None and call.end - call.start > SHOWN_NS

    def limits(self):
        """From when to when the loop may begin, and the earliest end of the last work."""
        steps = [at for at in getattr(self.proc, "steps", []) if self.start <= at < self.end or not self.seen_start]
        first_work = self.work[0].start if self.work else self.end
        fifth = steps[4] if len(steps) > 4 else self.end
        warm = next((c.start for c in self.calls if not c.warmup and c.start >= min(fifth, self.end - 1)), self.end)
        if self.seen_start:
            # a warm-up may be told by a number of steps or by a part of the time
            self.loop_from = [first_work, max(warm, first_work + (self.end - first_work) // 20)]
        else:
            later = [at for at in steps if at > self.start]
            self.loop_from = [self.start, max(later[2] if len(later) > 2 else self.end, warm)]
        self.last_work = max([c.start for c in self.work] or [self.start])
        self.last_end = max([c.end if c.end is not None else self.end for c in self.work] or [self.start])

    def at_the_end(self):
        """After the last work: the shutdown, or what it would be if work followed."""
        for s in self.stretches:
            if s.start >= self.last_end:
                s.classes |= {"wind_down", "not_judged"} if s.calls else {"wind_down", "not_judged", "idle", "silence", "between"}

    # ---- what a report may say, given where its loop begins

    def bounds(self, loop_from):
        """Class -> [least, most] ns, with everything before `loop_from` in start_up."""
        out = {name: [0, 0] for name in CLASSES}
        out["start_up"] = [loop_from - self.start, loop_from - self.start]
        for s in self.stretches:
            ns = s.end - max(s.start, loop_from)
            if ns > 0:
                for name in s.classes:
                    out[name][0] += ns if len(s.classes) == 1 else 0
                    out[name][1] += ns
        return out

    def lost(self, loop_from):
        """[least, most] ns of idle and silence together."""
        low = high = 0
        for s in self.stretches:
            ns = s.end - max(s.start, loop_from)
            if ns > 0 and s.classes & LOST:
                high += ns
                low += ns if s.classes <= LOST else 0
        return [low, high]

    def idle_in_calls(self):
        """How much of each call that gives the GPU nothing to do lies in time that may be idle."""
        out = {}
        for s in self.stretches:
            if "idle" in s.classes and s.classes != ANY:
                for c in s.calls:
                    out[c] = out.get(c, 0) + s.ns
        return out

    def host_calls(self, loop_from):
        """Class -> [least, most] ns of the loop in calls that may keep the host from feeding the GPU."""
        out = {name: [0, 0] for name in ("memory", "load", "copy")}
        for s in self.stretches:
            ns = min(s.end, self.last_end) - max(s.start, loop_from)
            for name in s.classes & out.keys() if ns > 0 else ():
                sure = len(s.classes) == 1 and (name != "copy" or all(is_pageable(c) for c in s.calls))
                out[name][0] += ns if sure else 0
                out[name][1] += ns
        return out

    def next_work(self, at):
        i = bisect_left(self.work, at, key=lambda c: c.start)
        return self.work[i] if i < len(self.work) else None
