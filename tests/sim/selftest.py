"""What must hold in every simulation, whatever the tools say: else the truth is none."""

from engine import DISK, QUOTA, RQ, RUN, SLEEP
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
    for proc in world.cuda_watch:
        for g in gaps(world, proc, paths):
            if g.parts and sum(p.ns for p in g.parts) != g.ns:
                out.append(f"pid {proc.pid}: gap at {g.start}: parts {sum(p.ns for p in g.parts)} of {g.ns}")
    return out
