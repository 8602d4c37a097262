"""Loads with a rhythm of their own: few calls, heavy tails, gaps at regular times, waiting by hand, steal; and
tracers that are killed."""

import workloads as w
from engine import Cgroup
from workloads import MS, US


def sparse(s):
    """A handful of calls in each step: half of the time between calls is the gap, or more."""
    s.end_ns = s.ms(2000, 3500)
    cfg = s.train(s.rng.choice([s.workers(), w.plain(w.own(s.work()))]), gap_chance=1.0, launches=s.rng.choice([1, 2]))
    cfg.funcs, cfg.sizes = cfg.funcs[:1], cfg.sizes[:1]
    s.note(launches=cfg.launches, drain=cfg.drain)


def heavy_tails(s):
    s.cpus(8)
    tail = s.rng.choice([1.1, 1.5, 2.0])
    s.note(tail=tail)
    s.train(gap_chance=0.0, tail=tail, between_ns=s.rng.randint(5, 20) * US)


def jitter(s):
    """Healthy: small hiccups everywhere, none of which is worth a word."""
    s.cpus(8)
    s.healthy = True
    s.train(w.plain(w.own(w.mix(s.rng, 700 * US, ["run", "io", "sleep"]))), gap_chance=0.2, slow=[("cudaLaunchKernel", 0.002, "sleep", 300 * US)],
            gpu_ns=s.ms(6, 12), drain=True)


def periodic(s):
    """The same pause once in so many steps (a checkpoint, a log line)."""
    every = s.rng.randint(3, 8)
    s.end_ns = s.ms(3000, 4500)
    ns, kind = s.ms(20, 60), s.rng.choice(["run", "io", "sleep"])
    s.note(period=every, ns=ns, kind=kind)
    count = [0]

    def fetch(me):
        count[0] += 1
        if count[0] % every == 0:
            yield (kind, ns)
        yield ("run", 80 * US)

    cfg = s.train(w.plain(fetch), gap_chance=1.0)
    cfg.gpu_slow, s.periodic = (0.0, 0), True


def asked_by_hand(s):
    """The GPU always has work, and the process looks now and then whether it is done: often enough, that is healthy."""
    s.cpus(8)
    query = (s.rng.choice([100 * US, 300 * US, 2 * MS, 5 * MS]), s.rng.choice(["run", "sleep"]))
    s.healthy = query[0] <= 300 * US
    s.note(query=query)
    s.train(gap_chance=0.0, gpu_ns=s.ms(20, 60), query=query)


def overlapped(s):
    """Healthy: the host prepares the next batch while the GPU computes, and then waits for it."""
    s.cpus(8)
    s.healthy = True
    host = s.ms(5, 25)
    s.note(host=host)
    s.train(gap_chance=0.0, gpu_ns=2 * host + s.ms(10, 30), host_ns=host, drain=True, gaps_from=0)


def slowed(s):
    """From some step on everything between calls takes longer, though no single stretch is long."""
    s.cpus(8)
    s.end_ns = s.ms(6000, 8000)
    factor = s.rng.randint(4, 8)
    cfg = s.train(gap_chance=0.0, between_ns=s.rng.randint(20, 60) * US, launches=24, gpu_ns=1 * MS, spin=False)
    cfg.slows = (s.rng.randint(40, 60) * s.end_ns // 100, factor)
    s.slowed = True
    s.note(factor=factor, at=cfg.slows[0])


def pinned_quota(s):
    """A thread under a quota that also shares its CPU; the other CPUs are idle."""
    s.cpus(8)
    group = Cgroup("/jobs/train", s.ms(20, 45))
    s.note(quota=group.quota_ns)
    s.train(w.plain(w.own(s.work(15, 60, ["run"]))), cgroup=group, pin=[0])
    s.other("blender", w.hog(s.ms(5, 60), s.rng.choice([200 * US, 3 * MS])), allowed=[0])


def pinned_with_quota_elsewhere(s):
    """A thread that shares its CPU, in a group that other threads of the process use up now and then."""
    s.cpus(8)
    group = Cgroup("/jobs/train", s.ms(60, 120))
    s.note(quota=group.quota_ns)
    s.train(w.either([w.plain(w.own(s.work(15, 40, ["run"]))), w.pool(4, s.work(20, 60, ["run"]))], [3, 1]), cgroup=group, pin=[0])
    s.other("blender", w.hog(s.ms(5, 60), s.rng.choice([200 * US, 3 * MS])), allowed=[0])


def stolen(s):
    """The hypervisor runs others in some seconds."""
    s.cpus(4)
    s.end_ns = s.ms(2500, 4500)
    s.steal = {i: s.rng.choice([0, 0, 2, 15, 40]) for i in range(6)}
    s.note(steal=s.steal)
    s.train(s.rng.choice([w.plain(w.own(s.work())), s.workers()]))


def sched_killed(s):
    """kill -9 of the scheduler tracer: no `end`, and nothing of what was going on."""
    s.killed = "sched"
    s.end_ns = s.ms(1500, 3000)
    s.train(s.rng.choice([w.plain(w.own(s.work())), s.workers(), w.pool(2, s.work())]))
    s.noise()


def cuda_killed(s):
    s.killed = "cuda"
    s.end_ns = s.ms(4000, 5500)
    s.train(s.rng.choice([w.plain(w.own(s.work())), s.workers()]))
    s.noise()


def short_hang(s):
    """A call that has hung for less than two seconds at the end, but for much of the run."""
    s.end_ns = s.ms(2300, 2800)
    s.train(gap_chance=0.0, hang_at=s.rng.randint(80, 160), cold_ns=5 * MS, gpu_ns=3 * MS, drain=True)
    s.hung = True


KINDS = (sparse, heavy_tails, jitter, periodic, asked_by_hand, overlapped, slowed, pinned_quota, pinned_with_quota_elsewhere, stolen, sched_killed,
         cuda_killed, short_hang)
