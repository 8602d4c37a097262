"""Loops in which it is known what each nanosecond is: decoding, checkpoints, allocators, launch-bound and graph loops,
several threads and streams. One kind for each rule of the account.
"""

import workloads as w
from engine import Queue
from workloads import MS, US, call, vary

# ---- pieces: what a thread does with the GPU. A GPU runs what a stream holds one after another.

EMPTY_CALL_NS = 6 * US


def begin(proc):
    proc.calls, proc.steps, proc.gpu_log, proc.free, proc.seen = [], [], [], {}, set()
    proc.cfg, proc.gpu_free = None, 0


def first(th, what):
    """Whether the process does this for the first time, which is cold."""
    new = what not in th.proc.seen
    th.proc.seen.add(what)
    return new


def enqueue(th, gpu_ns, warmup, op="cudaLaunchKernel", stream="0x7", ns=EMPTY_CALL_NS, **attrs):
    proc, now = th.proc, th.sim.now
    cold = first(th, (op, attrs.get("func")))
    start = max([now, *(proc.free.values() if op == "cudaMemcpyAsync" else [proc.free.get(stream, 0)])])
    proc.free[stream] = start + gpu_ns
    if "Memcpy" not in op:
        proc.gpu_log.append((start, start + gpu_ns))
    body = [("run", vary(th.sim.rng, ns)), *([("run", 2 * MS), ("sleep", 1 * MS), ("run", 1 * US)] if cold else [])]
    yield from call(th, op, body, warmup, cold, stream=stream, **attrs)


def synchronise(th, warmup, op="cudaStreamSynchronize", stream="0x7"):
    proc = th.proc
    until = max(proc.free.values(), default=0) if op == "cudaDeviceSynchronize" else proc.free.get(stream, 0)

    def body():
        yield ("run", 3 * US)
        if until > th.sim.now:
            yield ("sleep", until - th.sim.now)
        yield ("run", 2 * US)

    yield from call(th, op, body(), warmup, first(th, op), **({} if op == "cudaDeviceSynchronize" else {"stream": stream}))


def blocking_copy(th, size, direction, warmup, gb_s=6, op="cudaMemcpy", **attrs):
    """A pageable copy: it waits for what is before it, and brings its bytes over at the speed of a host."""
    proc = th.proc

    def body():
        yield ("run", 3 * US)
        left = max([th.sim.now, *proc.free.values()]) - th.sim.now
        if left > 0:
            yield ("sleep", left)
        yield ("run", max(3 * US, int(size / gb_s)))

    yield from call(th, op, body(), warmup, first(th, op), bytes=size, dir=direction, **attrs)
    proc.free = {}


def other(th, op, ns, warmup, kind="run", **attrs):
    yield from call(th, op, [("run", 1 * US), (kind, vary(th.sim.rng, ns)), ("run", 500)], warmup, first(th, op), **attrs)


def program(s, step, imports=None, steps=None, tail=0, comm="python3", side=()):
    """A process whose main thread runs `step(th, i, warmup)` over and over; the recording ends `tail` after the last one."""

    def script(th):
        begin(th.proc)
        yield ("run", s.ms(1, 3))
        yield from call(th, "cudaMalloc", [("run", 3 * MS), ("sleep", 4 * MS), ("run", 2 * MS)], True, True, bytes=1 << 28)
        th.proc.seen.add("cudaMalloc")
        if imports:
            yield from imports(th)
        for extra in side:
            th.proc.thread(extra, "side", th)
        i = 0
        while steps is None or i < steps:
            th.proc.steps.append(th.sim.now)
            yield from step(th, i, i < 4)
            i += 1
        th.sim.at(th.sim.now + tail, th.sim.halt)
        yield ("hang", None)

    proc = s.sim.process(comm)
    begin(proc)
    proc.thread(script)
    s.trains.append(proc)
    return proc


def host(s, ns, kind=None):
    """The host's own part of a step."""
    kind = kind or s.rng.choice(["run", "run", "sleep", "io"])
    return lambda: [(kind, vary(s.rng, ns, 0.05)), ("run", 1 * US)]


# ---- kinds

def bubbles(s):
    """Decoding: launch, wait, a little of the host's own work. The recording may begin and end with any of the calls."""
    s.cpus(4)
    pause = s.rng.choice([60 * US, 300 * US, 580 * US, 950 * US, 4 * MS, 8 * MS])
    gpu = s.rng.choice([140 * US, 1 * MS, 3 * MS, 12 * MS])
    pauses, launches = s.rng.choice([1, 1, 2]), s.rng.choice([1, 2, 5])
    graph = s.rng.random() < 0.3
    work = host(s, pause)
    steps = max(60, min(8000, 1200 * MS // (pauses * pause + gpu)))
    s.note(pause=pause, gpu=gpu, pauses=pauses, launches=launches, steps=steps)

    def step(th, i, warmup):
        for k in range(launches):
            yield from enqueue(th, gpu // launches, warmup, "cudaGraphLaunch" if graph else "cudaLaunchKernel", func=f"0x{k + 1}000")
            yield ("run", 4 * US)
            if i == steps - 1 and s.ends_with == "launch":
                return
        yield from synchronise(th, warmup)
        yield from work()
        if pauses == 2:
            yield from blocking_copy(th, 4096, "d2h", warmup)
            yield from work()

    s.end_ns = 30_000 * MS
    s.ends_with = s.rng.choice(["launch", "wait"])
    proc = program(s, step, steps=steps, tail=s.rng.choice([0, 10 * US, pause]))
    if s.rng.random() < 0.5:
        s.begins = (proc, s.rng.choice(["Launch", "Synchronize"]), 30)


def many_gaps(s):
    """More gaps of a kind than anybody keeps one by one, and a few long ones among them: the first, one in the middle."""
    s.cpus(4)
    s.end_ns = 30_000 * MS
    steps = s.rng.randint(5200, 9000)
    pause, gpu = s.rng.choice([60, 90, 200]) * US, s.rng.choice([80, 150]) * US
    long = {5: s.ms(20, 60), s.rng.randint(900, 1100): s.ms(20, 60), s.rng.randint(2000, steps - 100): s.ms(80, 120)}
    s.note(steps=steps, pause=pause, long=long)
    work = host(s, pause, "run")

    def step(th, i, warmup):
        yield from enqueue(th, gpu, warmup)
        yield ("run", 3 * US)
        yield from synchronise(th, warmup)
        yield from work()
        if i in long:
            yield (s.rng.choice(["io", "run", "sleep"]), long[i])
            yield ("run", 1 * US)

    program(s, step, steps=steps, tail=50 * US)


def imports(s):
    """Seconds of imports before a short loop that waits for most of its time."""
    s.cpus(4)
    s.end_ns = 60_000 * MS
    total, wait = s.ms(4000, 12000), s.ms(8, 30)
    calls = s.rng.random() < 0.6
    s.note(imports=total, wait=wait, calls=calls)

    def before(th):
        left = total
        while left > 0:
            piece = min(left, s.rng.randint(50, 1500) * MS)
            yield (s.rng.choice(["run", "io"]), piece)
            yield ("run", 5 * US)
            left -= piece
            if calls and s.rng.random() < 0.3:
                yield from other(th, s.rng.choice(["cudaMalloc", "cuLibraryLoadData", "cudaStreamCreate"]), 300 * US, True)

    work = host(s, wait)

    def step(th, i, warmup):
        yield from work()
        for k in range(4):
            yield from enqueue(th, 200 * US, warmup, func=f"0x{k + 1}000")
            yield ("run", 5 * US)
        yield from synchronise(th, warmup)

    program(s, step, before, steps=s.rng.randint(30, 60), tail=10 * US)


def early_waits(s):
    """Waits in the first steps, and loops of so few steps that no rhythm is ever established."""
    s.cpus(4)
    s.end_ns = 30_000 * MS
    steps = s.rng.choice([7, 9, 12, 60])
    wait, later = s.ms(40, 300), s.rng.choice([None, s.ms(40, 300)])
    s.note(steps=steps, wait=wait, later=later)

    def step(th, i, warmup):
        if i < 8:
            yield from host(s, wait, "run")()
        elif later and i < 12:
            yield from host(s, later, "io")()
        else:
            yield ("run", 50 * US)
        for k in range(3):
            yield from enqueue(th, 1 * MS, warmup, func=f"0x{k + 1}000")
            yield ("run", 5 * US)
        yield from synchronise(th, warmup)

    program(s, step, steps=steps, tail=10 * US)


def checkpoints(s):
    """Training that copies its state to pageable memory each so many steps, each copy followed by a synchronise, and writes it."""
    s.cpus(4)
    s.end_ns = 30_000 * MS
    every, tensors, size = s.rng.randint(5, 12), s.rng.randint(2, 5), s.rng.choice([32, 64]) << 20
    asynchronous, write = s.rng.random() < 0.5, s.ms(5, 60)
    s.note(every=every, tensors=tensors, size=size, asynchronous=asynchronous, write=write)

    def step(th, i, warmup):
        for k in range(12):
            yield from enqueue(th, 500 * US, warmup, func=f"0x{k + 1}000")
            yield ("run", 9 * US)
        yield from synchronise(th, warmup)
        yield ("run", 40 * US)
        if i % every == every - 1:
            for _ in range(tensors):
                if asynchronous:
                    yield from blocking_copy(th, size, "d2h", warmup, op="cudaMemcpyAsync", stream="0x7")
                    yield ("run", 5 * US)
                    yield from synchronise(th, warmup)
                else:
                    yield from blocking_copy(th, size, "d2h", warmup)
                yield ("run", 30 * US)
            yield ("io", write)
            yield ("run", 5 * US)

    program(s, step, steps=s.rng.randint(8, 14) * every, tail=10 * US)


def items(s):
    """Each step ends with a copy of four bytes that waits for the GPU: no host time in calls, and nothing lost."""
    s.cpus(4)
    s.end_ns = 30_000 * MS
    gpu = s.ms(4, 12)
    s.healthy = True
    s.note(gpu=gpu)

    def step(th, i, warmup):
        for k in range(6):
            yield from enqueue(th, gpu // 6, warmup, func=f"0x{k + 1}000")
            yield ("run", 5 * US)
        yield from blocking_copy(th, 4, "d2h", warmup)
        yield ("run", 20 * US)

    program(s, step, steps=200, tail=10 * US)


def emptied_cache(s):
    """An allocator whose cache is emptied each step: while the GPU has nothing to do, or while it works."""
    s.cpus(4)
    s.end_ns = 30_000 * MS
    drained, blocks, ns = s.rng.random() < 0.6, s.rng.randint(2, 8), s.rng.choice([60, 200, 500]) * US
    kind = s.rng.choice(["run", "run", "sleep"])
    s.note(drained=drained, blocks=blocks, ns=ns, kind=kind)

    def empty(th, warmup):
        for op in ("cudaFree", "cudaMalloc"):
            for _ in range(blocks):
                yield from other(th, op, ns, warmup, kind, bytes=2 << 20)
                yield ("run", 3 * US)

    def step(th, i, warmup):
        for k in range(6):
            yield from enqueue(th, 400 * US, warmup, func=f"0x{k + 1}000")
            yield ("run", 8 * US)
        if not drained:
            yield from empty(th, warmup)
        yield from synchronise(th, warmup)
        yield ("run", 15 * US)
        if drained:
            yield from empty(th, warmup)

    program(s, step, steps=150, tail=10 * US)


def launch_bound(s):
    """Small kernels: the GPU is done before the host asks. With and without samples of its use."""
    s.cpus(4)
    s.end_ns = 60_000 * MS
    kernel, between = s.rng.choice([3, 8, 20]) * US, s.rng.choice([25, 40, 80]) * US
    launches, every = s.rng.randint(24, 96), s.rng.choice([1, 2, 10])
    steps = max(60, 1600 * MS // (launches * (between + EMPTY_CALL_NS)))
    s.gpu_sampled, s.launch_bound = s.rng.random() < 0.7, True
    s.note(kernel=kernel, between=between, launches=launches, every=every, steps=steps, sampled=s.gpu_sampled)

    def step(th, i, warmup):
        for k in range(launches):
            yield from enqueue(th, kernel, warmup, func=f"0x{k % 9 + 1}000")
            yield ("run", vary(s.rng, between))
        if i % every == every - 1:
            yield from synchronise(th, warmup)
            yield ("run", 5 * US)

    program(s, step, steps=steps, tail=10 * US)


def graphs(s):
    """Graph replays back to back: the GPU is busy, though the host hardly does anything."""
    s.cpus(4)
    s.end_ns = 60_000 * MS
    s.healthy, s.gpu_sampled = True, s.rng.random() < 0.7
    graph, each = s.rng.choice([300, 900]) * US, s.rng.choice([4, 20])
    s.note(graph=graph, each=each, sampled=s.gpu_sampled)

    def step(th, i, warmup):
        for _ in range(each):
            yield from enqueue(th, graph, warmup, "cudaGraphLaunch")
            yield ("run", 5 * US)
        yield from synchronise(th, warmup)
        yield ("run", 3 * US)

    program(s, step, steps=max(40, 2500 * MS // (graph * each)), tail=10 * US)


def captures(s):
    """Graphs that are captured anew every so many steps while the GPU has nothing to do: what is captured gives it nothing either."""
    s.cpus(4)
    s.end_ns = 30_000 * MS
    every, launches, gpu = s.rng.choice([2, 5, 10]), s.rng.randint(20, 200), s.ms(1, 4)
    between, beside = s.rng.choice([10, 60]) * US, s.rng.random() < 0.5
    s.note(every=every, launches=launches, gpu=gpu, between=between, beside=beside)

    def captured(th, begin, op, warmup, stream="0x7", **attrs):
        call_ns = [("run", vary(th.sim.rng, EMPTY_CALL_NS))]
        yield from call(th, op, call_ns, warmup, first(th, (op, "captured", attrs.get("func"))), stream=stream, **attrs)
        th.proc.calls[-1].capture = begin
        yield ("run", vary(th.sim.rng, between))

    def capture(th, warmup):
        yield from other(th, "cudaStreamBeginCapture", 4 * US, warmup, stream="0x7")
        begin = th.proc.calls[-1]
        if beside:  # another stream joins by waiting for an event that the captured one recorded
            yield from captured(th, begin, "cudaEventRecord", warmup, event="0xe1")
            yield from captured(th, begin, "cudaStreamWaitEvent", warmup, "0x9", event="0xe1")
        for k in range(launches):
            stream = "0x9" if beside and k % 2 else "0x7"
            yield from captured(th, begin, "cudaLaunchKernel", warmup, stream, func=f"0x{k % 7 + 1}000")
        if beside:
            yield from captured(th, begin, "cudaEventRecord", warmup, "0x9", event="0xe2")
            yield from captured(th, begin, "cudaStreamWaitEvent", warmup, event="0xe2")
        yield from other(th, "cudaStreamEndCapture", 20 * US, warmup, stream="0x7")
        yield from other(th, "cudaGraphInstantiate", launches * 3 * US, warmup)

    def step(th, i, warmup):
        if i % every == 0:
            yield from capture(th, warmup)
        yield from enqueue(th, gpu, warmup, "cudaGraphLaunch")
        yield ("run", 5 * US)
        yield from synchronise(th, warmup)
        yield ("run", 20 * US)

    program(s, step, steps=100, tail=10 * US)


def copies_only(s):
    """Pageable copies and nothing else: the GPU's use that the driver counts is small, but it is no launch-bound loop."""
    s.cpus(4)
    s.end_ns = 60_000 * MS
    s.gpu_sampled, s.copies = s.rng.random() < 0.7, True
    direction, wait = s.rng.choice(["h2d", "d2h"]), s.rng.random() < 0.5
    s.note(direction=direction, wait=wait)

    def step(th, i, warmup):
        if i % 8 == 0:
            yield from enqueue(th, 100 * US, warmup)
            yield ("run", 5 * US)
        yield from blocking_copy(th, 64 << 20, direction, warmup, op="cudaMemcpyAsync", stream="0x7")
        yield ("run", 5 * US)
        if wait:
            yield from synchronise(th, warmup)
            yield ("run", 5 * US)

    program(s, step, steps=200, tail=10 * US)


def noisy_rhythm(s):
    """A long wait each so many steps, and many short ones that come as they like: the rhythm is that of the time lost."""
    s.cpus(4)
    s.end_ns = 30_000 * MS
    every, wait, periods = s.rng.randint(3, 6), s.ms(40, 90), s.rng.randint(9, 14)
    s.periodic = True
    s.note(every=every, wait=wait)

    def step(th, i, warmup):
        for k in range(4):
            yield from enqueue(th, 1 * MS, warmup, func=f"0x{k + 1}000")
            yield ("run", 8 * US)
        yield from synchronise(th, warmup)
        if i % every == every - 1:
            yield ("io", wait)
        elif s.rng.random() < 0.3:
            yield ("io", s.rng.randint(200, 1500) * US)
        yield ("run", 20 * US)

    program(s, step, steps=every * periods + 1, tail=10 * US)


def sampled(s):
    """Another tool's recording: of the calls of the whole loop only some are stored, and it is known how many are not.

    Either so many are missing that what looks like pauses may be none, or so few that pauses remain whatever they did.
    """
    s.cpus(4)
    s.end_ns = 60_000 * MS
    dense = s.rng.random() < 0.5
    wait = s.ms(300, 500)
    s.sampling = ("dense", 150) if dense else ("few", s.rng.randint(1, 4))
    s.note(dense=dense, wait=wait)

    def step(th, i, warmup):
        for k in range(6):
            yield from enqueue(th, 100 * US, warmup, func=f"0x{k + 1}000")
            yield ("run", 8 * US)
        yield from synchronise(th, warmup)
        if dense:
            yield ("run", 20 * US)
        else:
            yield ("io", wait)
            yield ("run", 20 * US)

    program(s, step, steps=2500 if dense else 12, tail=10 * US)


def threads(s):
    """Several threads with calls of their own: what one enqueues feeds the GPU, whatever the others wait for."""
    s.cpus(8)
    s.end_ns = 2500 * MS
    pause, gpu, n = s.rng.choice([1, 3, 9]) * MS, s.rng.choice([1, 4]) * MS, s.rng.randint(1, 3)
    what = s.rng.choice(["waits", "allocates", "records", "works"])
    s.note(pause=pause, gpu=gpu, n=n, what=what)

    def beside(th):
        i = 0
        while True:
            yield ("sleep", s.rng.randint(500, 9000) * US)
            if what == "waits":
                yield from synchronise(th, i < 1, "cudaDeviceSynchronize")
            elif what == "allocates":
                yield from other(th, "cudaMalloc", 300 * US, i < 1, bytes=4096)
            elif what == "records":
                yield from other(th, "cudaEventRecord", 3 * US, i < 1, stream="0x9")
            else:
                yield from enqueue(th, 500 * US, i < 1, stream="0x9", func="0x9000")
                yield ("run", 20 * US)
                yield from synchronise(th, i < 1, stream="0x9")
            yield ("run", 10 * US)
            i += 1

    def step(th, i, warmup):
        for k in range(5):
            yield from enqueue(th, gpu // 5, warmup, func=f"0x{k + 1}000")
            yield ("run", 8 * US)
        yield from synchronise(th, warmup, s.rng.choice(["cudaStreamSynchronize", "cudaDeviceSynchronize"]))
        yield from host(s, pause, "run")()

    program(s, step, side=[beside] * n)


def streams(s):
    """Work on several streams: to wait for one of them drains nothing, to wait for each does."""
    s.cpus(4)
    s.end_ns = 30_000 * MS
    n, wait, pause = s.rng.randint(2, 3), s.rng.choice(["one", "each", "device"]), s.rng.choice([300 * US, 2 * MS, 15 * MS])
    names = [f"0x{7 + k}" for k in range(n)]
    s.note(streams=n, wait=wait, pause=pause)

    def step(th, i, warmup):
        for k in range(6):
            yield from enqueue(th, 600 * US, warmup, stream=names[k % n], func=f"0x{k + 1}000")
            yield ("run", 8 * US)
        if wait == "device":
            yield from synchronise(th, warmup, "cudaDeviceSynchronize")
        for name in names if wait == "each" else names[:1] if wait == "one" else ():
            yield from synchronise(th, warmup, stream=name)
            yield ("run", 2 * US)
        yield from host(s, pause, "run")()

    program(s, step, steps=max(40, min(400, 1500 * MS // (pause + 3 * MS))), tail=10 * US)


def events_in_idle(s):
    """Events are recorded, waited for and asked about while the GPU has nothing to do: that is no work."""
    s.cpus(4)
    s.end_ns = 30_000 * MS
    pause, n = s.rng.choice([200 * US, 1 * MS, 6 * MS]), s.rng.randint(1, 5)
    ops = s.rng.choice([["cudaEventRecord"], ["cudaEventRecord", "cudaStreamWaitEvent"], ["cudaStreamSynchronize"], ["cudaStreamQuery"],
                        ["cudaEventRecord", "cudaMalloc"]])
    s.note(pause=pause, n=n, ops="+".join(ops))

    def step(th, i, warmup):
        for k in range(4):
            yield from enqueue(th, 500 * US, warmup, func=f"0x{k + 1}000")
            yield ("run", 8 * US)
        yield from synchronise(th, warmup)
        for _ in range(n):
            yield from host(s, pause // n, "run")()
            for op in ops:
                yield from other(th, op, 3 * US, warmup, stream="0x7")
                yield ("run", 2 * US)
        yield ("run", 4 * US)

    program(s, step, steps=max(60, min(600, 1500 * MS // (pause + 2 * MS))), tail=10 * US)


def polling(s):
    """A wait by hand: it asks over and over whether the stream is done, then does its own work."""
    s.cpus(4)
    s.end_ns = 30_000 * MS
    gpu, every, pause = s.ms(2, 8), s.rng.choice([5 * US, 100 * US]), s.rng.choice([100 * US, 12 * MS])
    s.note(gpu=gpu, every=every, pause=pause)

    def step(th, i, warmup):
        for k in range(4):
            yield from enqueue(th, gpu // 4, warmup, func=f"0x{k + 1}000")
            yield ("run", 8 * US)
        while True:
            done = th.sim.now >= th.proc.free["0x7"]
            yield from call(th, "cudaStreamQuery", [("run", 2 * US)], warmup, first(th, "cudaStreamQuery"), stream="0x7", **({} if done else {"ret": 600}))
            if done:
                break
            yield ("run", every)
        yield from host(s, pause, "run")()

    program(s, step, steps=max(30, 800 * MS // (gpu + pause)), tail=10 * US)


def renewed_waits(s):
    """The main thread waits for its worker with a time-out, and again at once: one wait, for who ends it at last."""
    s.cpus(4)
    s.end_ns = 2200 * MS
    work, every = s.ms(9, 40), s.rng.choice([3, 5]) * MS
    s.note(work=work, every=every)

    def step_with(fetch):
        def step(th, i, warmup):
            yield from fetch(th)
            for k in range(4):
                yield from enqueue(th, 500 * US, warmup, func=f"0x{k + 1}000")
                yield ("run", 8 * US)
            yield from synchronise(th, warmup)

        return step

    tasks, results = Queue(), Queue()

    def worker(th):
        while True:
            yield ("get", tasks)
            yield ("run", work)
            th.sim.put(results, 1, th)
            yield ("run", 3 * US)

    def fetch(th):
        if first(th, "worker"):
            th.sim.process("pt_data_worker", th).thread(worker, creator=th)
        th.sim.put(tasks, 1, th)
        yield ("run", 5 * US)
        while (yield ("get_for", (results, every))) is None:
            yield ("run", 3 * US)

    program(s, step_with(fetch))


KINDS = (bubbles, many_gaps, imports, early_waits, checkpoints, items, emptied_cache, launch_bound, graphs, captures, copies_only, noisy_rhythm,
         sampled, threads, streams, events_in_idle, polling, renewed_waits)
