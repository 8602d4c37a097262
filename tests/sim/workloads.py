"""What the threads do: a training loop, its loaders, and who else is on the machine.

Every function here is a script for `engine.Thread` or a part of one (`yield
from`). A "fetch" is the part of a training step in which no CUDA call is made:
it is what makes the gaps, so there is one for each way of waiting.
"""

from engine import Queue

US, MS = 1_000, 1_000_000


class Call:
    """One CUDA call as the process made it; `end` None: it has not returned."""

    __slots__ = ("th", "op", "start", "end", "attrs", "cold", "warmup", "nested", "capture")

    def __init__(self, th, op, attrs, warmup):
        self.th, self.op, self.attrs, self.start, self.end = th, op, attrs, th.sim.now, None
        self.cold, self.warmup, self.nested = False, warmup, None
        self.capture = None  # the call that began the capture which this one is a part of


class Train:
    """The shape of a training process: what a step consists of and what may go wrong in it."""

    def __init__(self, rng):
        self.funcs = [f"0x{rng.randrange(1 << 40, 1 << 44):x}" for _ in range(rng.randint(2, 6))]
        self.launches = rng.randint(6, 24)
        self.launch_ns, self.between_ns = rng.randint(4, 12) * US, rng.randint(5, 40) * US
        self.sizes = rng.sample([4096, 65536, 1 << 20, 16 << 20, 64 << 20], rng.randint(1, 3))
        self.gpu_ns = rng.randint(1, 4) * MS
        self.gpu_slow = (0.0, 0)  # chance for each step, extra GPU time
        self.sync = rng.choice(["cudaStreamSynchronize", "cudaDeviceSynchronize", "cudaEventSynchronize"])
        self.spin = rng.random() < 0.2
        self.drain = rng.random() < 0.8  # a synchronise at the end of each step
        self.slow = []  # (op, chance, "run" | "sleep" | "io", ns)
        self.new_func = 0.0  # chance for each step of a kernel never launched before
        self.cold_ns = rng.choice([5, 40, 300]) * MS
        self.warm_steps = 4  # steps that may count as cold start
        self.gaps_from = rng.choice([4, 4, 1, 0])  # the first step that fetches
        self.prelude = None  # what a process does with CUDA before its first step
        self.any_size = False  # copies of all sizes, and copies back at another speed
        self.gap_chance, self.fetch, self.quick_ns = 1.0, None, rng.randint(30, 300) * US
        self.steps, self.exits, self.hang_at, self.winds_down = None, False, None, False
        self.tail = None  # the exponent of a heavy tail of the calls' own times
        self.leaves = False  # what comes after the last step is somebody else's business
        self.query = None  # (ns, "run" | "sleep"): asks whether the GPU is done so often, instead of waiting in a call
        self.host_ns = 0  # what the host does between the last launch and the synchronise, while the GPU works
        self.slows = None  # (ns, factor): from that instant on everything between calls takes so much longer
        self.nested = rng.random() < 0.1


def vary(rng, ns, by=0.2):
    return max(1, int(ns * rng.uniform(1 - by, 1 + by)))


def call(th, op, body, warmup=False, cold=False, **attrs):
    record = Call(th, op, attrs, warmup)
    record.cold = cold
    th.proc.calls.append(record)
    for part in body:
        yield part
    record.end = th.sim.now


def driver(cfg, rng, op, usual_ns):
    """What a call does inside: its usual CPU time, and now and then something slow."""
    parts = [("run", pareto(rng, usual_ns, cfg.tail) if cfg.tail else vary(rng, usual_ns))]
    for slow_op, chance, kind, ns in cfg.slow:
        if slow_op == op and rng.random() < chance:
            parts += [(kind, vary(rng, ns)), ("run", 500)]
    return parts


def gpu_work(proc, start, ns):
    """The GPU has something to do for this process."""
    proc.gpu_log = getattr(proc, "gpu_log", [])
    proc.gpu_log.append((start, start + ns))
    proc.gpu_free = start + ns


def launch(th, cfg, func, warmup):
    rng, proc = th.sim.rng, th.proc
    first = func not in proc.seen
    proc.seen.add(func)
    body = driver(cfg, rng, "cudaLaunchKernel", cfg.launch_ns)
    if first:
        body = [("run", vary(rng, cfg.cold_ns)), ("sleep", cfg.cold_ns // 4), ("run", 2 * US)]
    gpu_work(proc, max(proc.gpu_free, th.sim.now), cfg.gpu_ns // cfg.launches)
    yield from call(th, "cudaLaunchKernel", body, warmup, first, func=func, grid=[64, 1, 1], block=[256, 1, 1], stream="0x7")


def copy(th, cfg, size, direction, warmup):
    rng = th.sim.rng
    key = ("copy", size, direction)
    first = key not in th.proc.seen
    th.proc.seen.add(key)
    body = driver(cfg, rng, "cudaMemcpyAsync", 8 * US + size // (6 if cfg.any_size else 4000))
    yield from call(th, "cudaMemcpyAsync", body, warmup, first, bytes=size, dir=direction, stream="0x7")


def synchronise(th, cfg, warmup):
    rng, proc = th.sim.rng, th.proc
    first = cfg.sync not in proc.seen
    proc.seen.add(cfg.sync)
    if rng.random() < cfg.gpu_slow[0] and not warmup:
        gpu_work(proc, proc.gpu_free, cfg.gpu_slow[1])
    left = proc.gpu_free - th.sim.now

    def body():
        yield ("run", 4 * US)
        if left > 0:
            yield ("run" if cfg.spin else "sleep", left)
        yield ("run", 2 * US)

    yield from call(th, cfg.sync, body(), warmup, first, stream="0x7")


def ask_until_done(th, cfg, warmup):
    """A wait made by hand: cudaStreamQuery until it says that all is done."""
    proc, rng = th.proc, th.sim.rng
    while True:
        done = th.sim.now >= proc.gpu_free
        first = "query" not in proc.seen
        proc.seen.add("query")
        attrs = {} if done else {"ret": 600}
        yield from call(th, "cudaStreamQuery", [("run", 2 * US)], warmup, first, stream="0x7", **attrs)
        if done:
            return
        yield (cfg.query[1], vary(rng, cfg.query[0]))


def step(th, cfg, warmup):
    rng = th.sim.rng
    th.proc.steps = getattr(th.proc, "steps", [])
    th.proc.steps.append(th.sim.now)
    for size in cfg.sizes:
        yield from copy(th, cfg, size, "h2d", warmup)
        yield ("run", vary(rng, cfg.between_ns))
    if cfg.any_size:
        size = int(4096 * 2 ** rng.uniform(0, 14))
        ns = 8 * US + size // 6  # 6 GB/s whatever the size
        yield from call(th, "cudaMemcpyAsync", [("run", vary(rng, ns, 0.1))], warmup, bytes=size, dir="h2d", stream="0x7")
        yield ("run", vary(rng, cfg.between_ns))
        for size in cfg.sizes:
            yield from call(th, "cudaMemcpyAsync", [("run", vary(rng, 9 * US + size // 200))], warmup, bytes=size, dir="d2h", stream="0x7")
            yield ("run", vary(rng, cfg.between_ns))
    if not warmup and rng.random() < cfg.new_func:
        yield from launch(th, cfg, f"0x{rng.randrange(1 << 45, 1 << 46):x}", warmup)
        yield ("run", vary(rng, cfg.between_ns))
    for i in range(cfg.launches):
        yield from launch(th, cfg, cfg.funcs[i % len(cfg.funcs)], warmup)
        yield ("run", vary(rng, cfg.between_ns))
    if cfg.host_ns:
        yield ("run", vary(rng, cfg.host_ns))
    if cfg.query:
        yield from ask_until_done(th, cfg, warmup)
    elif cfg.drain:
        yield from synchronise(th, cfg, warmup)


def pareto(rng, ns, tail=1.3):
    """A heavy-tailed time: most near `ns`, a few a hundred times that."""
    return int(min(ns * rng.paretovariate(tail), 400 * ns))


def messy_start(n):
    """Imports, allocations, first launches in no rhythm, as a framework does before its first step."""

    def prelude(th, cfg):
        rng = th.sim.rng
        for _ in range(n):
            what = rng.random()
            if what < 0.4:
                yield (rng.choice(["run", "io", "sleep"]), rng.randint(2, 250) * MS)
            elif what < 0.6:
                body = [("run", rng.randint(1, 60) * MS), ("sleep", rng.randint(1, 200) * MS)]
                yield from call(th, "cudaMalloc", body, True, True, bytes=1 << rng.randint(12, 30))
            elif what < 0.65:
                yield from call(th, "cuLibraryLoadData", [("run", rng.randint(1, 30) * MS)], True, True)
            elif what < 0.8:
                for _ in range(rng.randint(1, 4)):
                    yield from launch(th, cfg, f"0x{rng.randrange(1 << 45, 1 << 46):x}", True)
                    yield ("run", vary(rng, cfg.between_ns))
            else:
                yield from synchronise(th, cfg, True)
            yield ("run", rng.randint(20, 3000) * US)

    return prelude


def wind_down(th):
    """What is left when the work is done: frees, unloads, an interpreter's shutdown in between."""
    rng = th.sim.rng
    ops = rng.choices(["cudaFree", "cudaStreamDestroy", "cudaEventDestroy", "cuLibraryUnload"], k=rng.randint(0, 6)) + ["cuDevicePrimaryCtxRelease"]
    for op in ops:
        if rng.random() < 0.6:
            yield (rng.choice(["run", "run", "sleep"]), rng.randint(5, 600) * MS)
        yield from call(th, op, [("run", rng.randint(2, 3000) * US)], True, True)
        yield ("run", rng.randint(5, 500) * US)


def train(cfg, setup=None):
    """The main thread of a training process."""

    def script(th):
        rng, proc = th.sim.rng, th.proc
        proc.calls, proc.seen, proc.gpu_free, proc.cfg = getattr(proc, "calls", []), set(), 0, cfg
        yield ("run", rng.randint(1, 5) * MS)
        fetch = setup(th) if setup else cfg.fetch
        body = [("run", 3 * MS), ("sleep", cfg.cold_ns // 2), ("run", 2 * MS)]
        yield from call(th, "cudaMalloc", body, True, True, bytes=1 << 28)
        if cfg.prelude:
            yield from cfg.prelude(th, cfg)
        done = 0
        while cfg.steps is None or done < cfg.steps:
            warmup = done < cfg.warm_steps
            if done < cfg.gaps_from or fetch is None or rng.random() >= cfg.gap_chance:
                yield ("run", vary(rng, cfg.quick_ns))
            else:
                yield from fetch(th)
            yield from step(th, cfg, warmup)
            done += 1
            if cfg.hang_at is not None and done == cfg.hang_at:
                proc.hung = True
                yield from call(th, "ncclAllReduce", [("run", 3 * US), ("hang", None)], count=1 << 20)
            if cfg.slows and th.sim.now >= cfg.slows[0]:
                cfg.between_ns, cfg.quick_ns, cfg.slows = cfg.between_ns * cfg.slows[1], cfg.quick_ns * cfg.slows[1], None
        if cfg.winds_down:
            yield from wind_down(th)
        if cfg.leaves:
            return
        if not cfg.exits:
            yield ("hang", None)
        th.sim.at(th.sim.now, th.sim.kill, proc)
        yield ("hang", None)

    return script


def side_caller(cfg, every_ns, main):
    """A second thread of the process that makes CUDA calls of its own from time to time."""

    def script(th):
        rng = th.sim.rng
        while True:
            yield ("sleep", vary(rng, every_ns))
            warmup = len(th.proc.calls) < 8 * cfg.launches
            yield from copy(th, cfg, cfg.sizes[0], "d2h", warmup)
            yield ("run", 3 * US)

    return script


# ---- work: what somebody does for one item

def mix(rng, total_ns, kinds):
    """A list of operations of about `total_ns`, in small pieces of the given kinds."""

    def parts():
        left = vary(rng, total_ns)
        while left > 0:
            piece = min(left, rng.randint(total_ns // 12 + 1, total_ns // 3 + 2))
            yield (rng.choice(kinds), piece)
            left -= piece
        yield ("run", rng.randint(2, 9) * US)

    return parts


# ---- fetches

def own(work):
    """The main thread does it itself: computing, reading, sleeping on a timer."""

    def fetch(th):
        yield from work()

    return fetch


def workers(n, work, depth=0, feeder=None, pin=False, lock=None, service=None, allowed=None, cgroup=None, comm="pt_data_worker"):
    """Worker processes behind a task queue and a result queue.

    feeder: None (the worker wakes the reader itself), "thread" (a thread that lives as long
    as the worker), "lazy" (created with the first item), "item" (a new one for each item).
    pin: a thread of the training process takes the results and hands them on.
    lock: a queue with one item, held by a worker while it does half of its work.
    service: (requests, replies) of another process that each item is sent through.
    """

    def setup(th):
        sim, rng = th.sim, th.sim.rng
        tasks, results, pinned = Queue(), Queue(), Queue()

        def feed(inner, once):
            def script(me):
                while True:
                    item = yield ("get", inner)
                    yield ("run", rng.randint(10, 90) * US)
                    sim.put(results, item, me)
                    yield ("run", rng.randint(1, 9) * US)
                    if once:
                        return

            return script

        def worker(me):
            inner = Queue() if feeder == "thread" else None
            if inner:
                me.proc.thread(feed(inner, False), "QueueFeederThre", me, allowed)
            yield ("run", rng.randint(100, 900) * US)
            while True:
                item = yield ("get", tasks)
                if item is None:
                    return
                if lock:
                    yield ("get", lock)
                    yield from work()
                    sim.put(lock, 1, me)
                yield from work()
                if service:
                    sim.put(service[0], me, me)
                    yield ("run", 2 * US)
                    yield ("get", service[1])
                    yield ("run", rng.randint(5, 50) * US)
                if feeder is None:
                    sim.put(results, item, me)
                elif feeder == "item" or inner is None:
                    early = rng.random() < 0.5  # the item is there before the feeder, or after it
                    inner = Queue([item] if early else [])
                    me.proc.thread(feed(inner, feeder == "item"), "QueueFeederThre", me, allowed)
                    yield ("run", rng.randint(5, 60) * US)
                    if not early:
                        sim.put(inner, item, me)
                else:
                    sim.put(inner, item, me)
                yield ("run", rng.randint(3, 30) * US)

        def pinner(me):
            while True:
                item = yield ("get", results)
                yield ("run", rng.randint(20, 200) * US)
                sim.put(pinned, item, me)
                yield ("run", rng.randint(1, 9) * US)

        for _ in range(n):
            proc = sim.process(comm, th)
            if cgroup:
                sim.join_cgroup(proc, cgroup)
            proc.thread(worker, creator=th, allowed=allowed)
        if pin:
            th.proc.thread(pinner, "pt_pin_memory", th)
        for i in range(depth):
            sim.put(tasks, i, th)

        def stop(me):
            for _ in range(n):
                sim.put(tasks, None, me)

        def fetch(me):
            sim.put(tasks, 0, me)
            yield ("run", rng.randint(5, 40) * US)
            yield ("get", pinned if pin else results)
            yield ("run", rng.randint(5, 60) * US)

        fetch.stop = stop
        return fetch

    return setup


def epochs(every, setup):
    """New workers every so many fetches, as a loader without persistent workers has: PIDs come again."""

    def start(th):
        state = [None, 0]

        def fetch(me):
            if state[1] % every == 0:
                if state[0]:
                    state[0].stop(me)
                    yield ("run", 100 * US)
                    yield ("sleep", 2 * MS)
                state[0] = setup(me)
                yield ("run", 300 * US)
            state[1] += 1
            yield from state[0](me)

        return fetch

    return start


def pool(n, work, per_item=False, allowed=None):
    """Threads of the process itself: a pool, or a new thread for each item that is joined."""

    def setup(th):
        sim, rng = th.sim, th.sim.rng
        tasks, done = Queue(), Queue()

        def helper(me):
            while True:
                item = yield ("get", tasks)
                yield from work()
                sim.put(done, item, me)
                yield ("run", 2 * US)

        def one(me):
            yield from work()

        if not per_item:
            for _ in range(n):
                th.proc.thread(helper, "helper", th, allowed)

        def fetch(me):
            if per_item:
                kids = [me.proc.thread(one, "helper", me, allowed) for _ in range(n)]
                yield ("run", rng.randint(5, 50) * US)
                for kid in kids:
                    yield ("join", kid)
            else:
                for i in range(n):
                    sim.put(tasks, i, me)
                yield ("run", rng.randint(5, 50) * US)
                for i in range(n):
                    yield ("get", done)
                    yield ("run", rng.randint(2, 20) * US)

        return fetch

    return setup


def child(work, early=None):
    """A new process for each item, waited for until it exits (its PID comes again soon).

    It runs another program after the work `early`; with the same PID it stays the same process.
    """

    def setup(th):
        def one(me):
            if early:
                yield from early()
                me.sim.life.append((me.sim.now, "exec", me, me.proc))
                me.comm = "convert"
                yield ("run", 50 * US)
            yield from work()

        def fetch(me):
            proc = me.sim.process(me.proc.comm if early else "convert", me)
            kid = proc.thread(one, creator=me)
            yield ("run", me.sim.rng.randint(20, 200) * US)
            yield ("join", kid)
            yield ("run", me.sim.rng.randint(5, 50) * US)

        return fetch

    return setup


def polling(work, every_ns):
    """The main thread looks every so often whether a helper thread has finished: timers wake it."""

    def setup(th):
        def one(me, done):
            yield from work()
            done.append(1)

        def fetch(me):
            done = []
            me.proc.thread(lambda th: one(th, done), "helper", me)
            while not done:
                yield ("sleep", every_ns)
                yield ("run", 9 * US)

        return fetch

    return setup


def ask(requests, replies):
    """A request to a process that was there before, and a wait for its answer."""

    def fetch(me):
        me.sim.put(requests, me, me)
        yield ("run", me.sim.rng.randint(5, 50) * US)
        yield ("get", replies)
        yield ("run", me.sim.rng.randint(5, 50) * US)

    return fetch


def infer(cfg, requests, replies, depth=1):
    """A CUDA process that makes a step for each request of another process."""

    def script(me):
        proc = me.proc
        proc.calls, proc.seen, proc.gpu_free, proc.cfg = [], set(), 0, cfg
        for i in range(10):
            yield ("run", cfg.quick_ns)
            yield from step(me, cfg, True)
        while True:
            yield ("get", requests)
            yield from step(me, cfg, False)
            me.sim.put(replies, 1, me)
            yield ("run", 3 * US)

    return script


def server(requests, replies, work):
    def script(me):
        while True:
            yield ("get", requests)
            yield from work()
            me.sim.put(replies, 1, me)
            yield ("run", 3 * US)

    return script


def ping_pong(rounds, mine, theirs, allowed=None):
    """The main thread and a helper thread work in turns."""

    def setup(th):
        go, back = Queue(), Queue()

        def other(me):
            while True:
                yield ("get", go)
                yield from theirs()
                me.sim.put(back, 1, me)
                yield ("run", 2 * US)

        th.proc.thread(other, "partner", th, allowed)

        def fetch(me):
            for _ in range(rounds):
                yield from mine()
                me.sim.put(go, 1, me)
                yield ("run", 2 * US)
                yield ("get", back)
            yield ("run", 5 * US)

        return fetch

    return setup


def newborn_caller(cfg, work, lead):
    """A thread created in the middle of the gap makes the call that ends it."""

    def setup(th):
        def caller(me):
            yield from work()
            yield from copy(me, cfg, cfg.sizes[0], "h2d", False)
            yield ("run", 3 * US)

        def fetch(me):
            yield from lead()
            kid = me.proc.thread(caller, "prefetch", me)
            yield ("run", 20 * US)
            yield ("join", kid)
            yield ("run", 10 * US)

        return fetch

    return setup


def either(setups, weights):
    """One of several fetches for each step."""

    def setup(th):
        fetches = [s(th) for s in setups]

        def fetch(me):
            yield from me.sim.rng.choices(fetches, weights)[0](me)

        return fetch

    return setup


def plain(fetch):
    return lambda th: fetch


# ---- others on the machine

def hog(busy_ns, pause_ns):
    def script(th):
        while True:
            yield ("run", vary(th.sim.rng, busy_ns))
            if pause_ns:
                yield ("sleep", vary(th.sim.rng, pause_ns))

    return script
