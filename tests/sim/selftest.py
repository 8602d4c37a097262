"""What must hold in every simulation, whatever the tools say: else the truth is none."""

from engine import DISK, QUOTA, RQ, RUN, SLEEP
from account import Account, programs
from truth import Paths, gaps


def problems(scenario):
    world, sim, out = scenario.world, scenario.sim, []
    for proc in sim.procs:
        for th in proc.threads:
            end = th.died if th.died is not None else world.end
            at = th.born
            for seg in th.segs:
                seg_end = seg.end if seg.end is not None else end
                if seg.start != at or seg_end < seg.start:
                    out.append(f"tid {th.tid}: {seg.kind} at {seg.start} does not follow {at}")
                at = seg_end
            if th.segs and at != end:
                out.append(f"tid {th.tid}: its stretches end at {at}, its life at {end}")
            off = sum(min(o.end, end) - o.start for o in th.offs)
            if th.off is not None:
                off += end - th.off.start
            first = th.born if th.creator is not None else th.first_on if th.first_on is not None else end
            on = sum((s.end if s.end is not None else end) - s.start for s in th.segs if s.kind == RUN)
            if on + off != end - first:
                out.append(f"tid {th.tid}: on {on} + off {off} is not the life {end - first}")
            kinds = {s.kind for s in th.segs}
            if not kinds <= {RUN, RQ, QUOTA, SLEEP, DISK}:
                out.append(f"tid {th.tid}: {kinds}")
    owner = {}
    for cpu in sim.cpus:
        for (a, b, _), (c, _, _) in zip(cpu.hist, cpu.hist[1:]):
            if c < b:
                out.append(f"cpu {cpu.index}: two threads at {c}")
        for a, b, th in cpu.hist:
            owner[th] = owner.get(th, 0) + b - a
    for th, ns in owner.items():
        on = sum((s.end if s.end is not None else world.end) - s.start for s in th.segs if s.kind == RUN)
        if on != ns:
            out.append(f"tid {th.tid}: {on} on a CPU by its stretches, {ns} by the CPUs'")
    paths = Paths(world)
    for proc, stretch in ((p, s) for p in world.cuda_watch for s in programs(world, p)):
        acct = Account(world, proc, *stretch)
        at = acct.start
        for stretch in acct.stretches:
            if stretch.start != at or stretch.end <= at:
                out.append(f"pid {proc.pid}: the account has {stretch.start}..{stretch.end} after {at}")
            if not stretch.classes:
                out.append(f"pid {proc.pid}: the account has no class for {stretch.start}..{stretch.end}")
            at = stretch.end
        if acct.stretches and at != acct.end:
            out.append(f"pid {proc.pid}: the account ends at {at}, the evidence at {acct.end}")
        out += idle_while_busy(proc, acct)
        for g in gaps(world, proc, paths, acct, acct.loop_from[0]):
            if sum(p.ns for p in g.parts) != g.ns:
                out.append(f"pid {proc.pid}: lost time at {g.start}: parts {sum(p.ns for p in g.parts)} of {g.ns}")
    return out


def idle_while_busy(proc, acct):
    """The GPU of this machine must have nothing to do wherever the account says that it is known to be idle."""
    own_from = acct.work[0].start if acct.work else acct.end  # what the program before it had enqueued went with it
    log = sorted(work for work in getattr(proc, "gpu_log", ()) if work[0] >= own_from)
    i = 0
    for stretch in acct.stretches:
        if stretch.classes != {"idle"}:
            continue
        while i < len(log) and log[i][1] <= stretch.start:
            i += 1
        if i < len(log) and log[i][0] < stretch.end and log[i][0] < log[i][1]:
            yield f"pid {proc.pid}: idle in {stretch.start}..{stretch.end}, but the GPU worked in {log[i]}"
            return
