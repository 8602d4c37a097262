"""A finished simulation as the tracers saw it: watches, losses, the two streams.

Records follow SCHEMA.md: written when their interval ends, in the order of
their ends with small inversions, clipped to what was watched, with losses
declared. What a tracer cannot know is not in them.
"""

import json
from datetime import datetime, timezone

BOOTED = 1_780_000_000_000_000_000  # wall clock - monotonic clock, ns
BOOT = "5b0c3f0e-6a55-4f0e-9d55-0c8f2f6d6a11"
ANY = frozenset(["host_cpu", "cpu_wait", "quota", "io_wait", "sleep", "wait", "worker_cpu", "worker_cpu_wait",
                 "worker_quota", "worker_io", "off_cpu", "blocked", "driver_cpu", "cuda_call", "spin", "pause", "lock", "network", "unexplained"])


def ts(mono):
    wall = mono + BOOTED
    whole = datetime.fromtimestamp(wall // 1_000_000_000, timezone.utc)
    return whole.strftime("%Y-%m-%dT%H:%M:%S") + f".{wall % 1_000_000_000:09d}Z"


class World:
    """`sched_watch` and `cuda_watch` say since when (simulated ns) a process was watched."""

    def __init__(self, sim, start, end, rng, base=1_000_000_000):
        self.sim, self.start, self.end, self.rng, self.base = sim, start, end, rng, base
        self.sched_end = end  # when the scheduler tracer stopped
        self.sched_watch, self.cuda_watch, self.why = {}, {}, {}
        self.cpu_hist = [c.hist for c in sim.cpus]
        self.lost = []  # (stream, start, end, share): what ended there is missing with this probability
        self.spans, self.declared = [], []  # stretches about which records are missing, and what was said of them
        self.stateless = set()  # Off whose record carries no state
        self.straddle = "clip"  # intervals that began before the watch: "clip", "full", "none"
        self.irq_style = "absent"  # how a wake-up from an interrupt is written
        self.newborns = True  # does the wait of a new thread for its first CPU have a record?
        self.inversion_ns, self.thread_ends = 0, "thread_exit"
        self.nested = False
        self.steal = {}  # second: percent of all CPU time that the hypervisor took
        self.gpu_sampled = False  # the samples have the GPU's use, and come four times a second
        self.sampling = None  # ("dense" | "few", n): calls that another tool did not store
        self.killed, self.killed_at = None, None
        self.cuda_end = end  # when the CUDA tracer stopped

    def kill(self, tool, at):
        """SIGKILL of a tracer: its stream stops there, with no `end` and nothing of what was still going on."""
        self.killed, self.killed_at = tool, at
        if tool == "sched":
            self.sched_end = at
        else:
            self.cuda_end = at

    # ---- what is known

    def unknown(self, th, seg):
        off = seg.off
        if off is None:
            return None
        if off in self.stateless:
            return ["off_cpu"]
        watched = self.sched_watch.get(th.proc)
        if self.straddle == "none" and watched is not None and off.start < watched < (off.end or self.end):
            return ANY
        return None

    def known_from(self, th, watched):
        """Since when the thread's state is in a record: an interval across the watch may be written in full."""
        if self.straddle == "full" and watched is not None:
            for off in [*th.offs, *([th.off] if th.off is not None else [])]:
                if off.start < watched < (off.end if off.end is not None else self.end):
                    return off.start
        return self.end

    def touched(self, start, end):
        return any(a < end and b > start for a, b in self.spans)

    def stolen(self, start, end):
        """Whether the samples over this stretch speak of steal."""
        low, high = (start - self.start) // 1_000_000_000, (end - self.start) // 1_000_000_000
        return any(self.steal.get(i, 0) for i in range(low, high + 1))

    def last_heard(self, th):
        """When the last written record of this thread ends."""
        return max([o.end for o in th.offs if id(o) in self.off_written] or [0])

    def seen_calls(self, proc):
        return self.visible.get(proc, [])

    # ---- records

    def head(self, src, op, start, th=None, dur=None):
        rec = {"src": src, "op": op, "mono_ns": start + self.base, "ts": ts(start + self.base)}
        if dur is not None:
            rec["dur_ns"] = dur
        if th is not None:
            rec.update(pid=th.proc.pid, tid=th.tid, comm=th.comm)
        return rec

    def opening(self, tool):
        return {**self.head("ingero", "start", self.start), "schema": 1, "tool": tool, "version": "0.0.0", "host": "box",
                "boot_id": BOOT, "clock": "monotonic", "wall_offset_ns": str(BOOTED), "kernel": "6.8.0", "filter": {},
                "probes": {"attached": [], "missing": [], "mode": "test"}}

    @staticmethod
    def who(ident):
        return {"pid": ident[0], "tid": ident[1], "comm": ident[2]}

    def off_record(self, off, watched):
        start = off.start
        if start < watched:
            if self.straddle == "none":
                return None
            if self.straddle == "clip":
                start = watched
        end = min(self.sched_end, off.end if off.end is not None else self.end)
        is_open = off.end is None or off.end > self.sched_end
        if off.born and not self.newborns or is_open and self.killed == "sched":
            return None
        if end < watched or off.start >= self.sched_end:
            return None
        rec = self.head("sched", "sched_switch", start, off.thread, end - start)
        woken = off.woken if off.woken is not None and off.woken <= self.sched_end else None
        if off not in self.stateless:
            rec["state"] = off.state
            rec["runq_ns"] = max(0, end - max(woken, start)) if woken is not None else 0
        rec["cpu"] = off.cpu if off.cpu is not None else off.thread.cpu
        if off.by:
            rec["by"] = self.who(off.by)
        if is_open:
            rec["open"] = True
        else:
            rec["prev"] = self.who(off.prev)
        if (off.state != "R" or off.born) and woken is not None and off not in self.stateless:
            if off.waker is not None:
                rec["waker"] = self.who(off.waker.ident())
            elif self.irq_style != "absent":
                rec["waker_irq"] = True
                if self.irq_style == "shown" and off.irq_on is not None and off.irq_on.segs:
                    rec["waker"] = self.who(off.irq_on.ident())
        return end, rec, off

    def sched_records(self):
        out = []
        for proc, watched in self.sched_watch.items():
            first = proc.threads[0]
            # the fork that made the process comes first
            if watched >= self.sched_end:
                continue
            out.append((watched + 1, {**self.head("ingero", "watch", watched, first), "why": self.why[proc], "stream": "sched"}, None))
            for th in proc.threads:
                offs = list(th.offs)
                if th.died is None and th.off is not None:
                    offs.append(th.off)
                for off in offs:
                    made = self.off_record(off, watched)
                    if made:
                        out.append(made)
                        if off.state == "D" and off.end is not None and off.end <= self.sched_end and off.start >= watched:
                            dur = off.woken - off.start
                            out.append((off.woken, {**self.head("block", "read", off.start, th, dur), "bytes": 1 << 20, "dev": "259:0"}, None))
        for when, kind, th, what in self.sim.life:
            if when > self.sched_end or self.sched_watch.get(th.proc, self.end + 1) > when:
                continue
            ops = {"fork": "sched_process_fork", "thread": "thread_create", "exit": "sched_process_exit", "exec": "sched_process_exec"}
            rec = self.head("sched", ops.get(kind, self.thread_ends), when, th)
            if kind == "fork":
                rec["child_pid"] = what.pid
            elif kind == "thread":
                rec["child_tid"] = what.tid
            elif kind == "exit":
                rec["tid"], rec["code"] = th.proc.pid, 0
            elif kind == "exec":
                rec["exe"] = "/usr/bin/convert"
            out.append((when, rec, "life"))
        out += [(end, rec, "sys") for end, rec in self.samples()]
        return out

    def samples(self):
        out, at = [], self.start
        every = 250_000_000 if self.gpu_sampled else 1_000_000_000
        kernels = [stretch for p in self.cuda_watch for stretch in getattr(p, "gpu_log", ())] if self.gpu_sampled else []
        while at < self.sched_end:
            to = min(self.sched_end, at + every)
            if self.killed == "sched" and to == self.sched_end:
                break
            busy = [sum(max(0, min(b, to) - max(a, at)) for a, b, _ in hist) / (to - at) * 100 for hist in self.cpu_hist]
            rec = {**self.head("sys", "sample", at, None, to - at), "cpu_pct": round(sum(busy) / len(busy), 1),
                   "cpu_max_pct": round(max(busy), 1), "cpus": len(busy), "runnable": 1 + sum(len(c.rq) for c in self.sim.cpus),
                   "iowait_pct": 0.0, "steal_pct": float(self.steal.get(len(out), 0)), "mem_avail_bytes": 8 << 30, "swap_used_bytes": 0}
            quota = []
            for group in self.sim.cgroups:
                times, ns, since = 0, 0, None
                for when, on in group.log + [(self.sched_end, 0)]:
                    if on:
                        since = when
                        times += at <= when < to
                    elif since is not None:
                        ns += max(0, min(when, to) - max(since, at))
                        since = None
                pids = sorted({p.pid for p in group.procs if p in self.sched_watch and p.died is None})
                if pids:
                    quota.append({"cgroup": group.name, "pids": pids, "periods": (to - at) // group.period_ns, "throttled": times, "throttled_ns": ns})
            if quota:
                rec["quota"] = quota
            if self.gpu_sampled:
                in_use = sum(max(0, min(b, to) - max(a, at)) for a, b in kernels) / (to - at) * 100
                rec["gpu"] = [{"index": 0, "util_pct": min(100, round(in_use)), "mem_used_bytes": 4 << 30}]
            out.append((to, rec))
            at = to
        return out

    def cuda_records(self):
        out = []
        for proc, watched in self.cuda_watch.items():
            first = proc.threads[0]
            out.append((watched, {**self.head("ingero", "watch", watched, first), "why": "cuda", "stream": "cuda", "lib": ["/usr/lib/libcudart.so.12"], "layers": ["cudart"]}, None))
            for c in proc.calls:
                end = c.end if c.end is not None else self.end
                if c.start < watched or c.start >= self.end or self.killed == "cuda" and (c.end is None or c.end > self.cuda_end):
                    continue
                src = "nccl" if c.op.startswith("nccl") else "cudart" if c.op.startswith("cuda") else "cuda"
                rec = self.head(src, c.op, c.start, c.th, end - c.start)
                if c.end is None:
                    rec["open"] = True
                else:
                    rec["ret"] = 0
                rec["depth"] = 0
                rec.update(c.attrs)
                if self.nested and c.end is not None and c.end - c.start > 3000 and c.op == "cudaLaunchKernel":
                    inner = {**rec, "src": "cuda", "op": "cuLaunchKernel", "mono_ns": c.start + 300 + self.base, "ts": ts(c.start + 300 + self.base), "dur_ns": end - c.start - 700, "depth": 1}
                    out.append((end - 400, inner, "nested"))
                out.append((end, rec, c))
        return out

    # ---- losses

    def lose(self, stream, records):
        """Drop what ended in the lost ranges of this stream, and say so.

        The `lost` record covers the intervals that are missing, from where the earliest of them began: a record is
        written at its end, and silence before a loss would else look like running.
        """
        if stream == "cuda" and self.sampling:
            records = self.thin(records)
        for name, start, end, share in self.lost:
            if name != stream or (stream == "sched" and end > self.sched_end):
                continue
            kept, gone = [], []
            for item in records:
                hit = item[2] not in (None, "sys", "nested") and start <= item[0] <= end and self.rng.random() < share
                (gone if hit else kept).append(item)
            start = min([start] + [rec["mono_ns"] - self.base for _, rec, _ in gone])
            self.spans.append((start, end))
            self.declared.append((stream, start, end))
            records = kept
            note = {**self.head("ingero", "lost", start, None, end - start), "stream": stream, "count": len(gone), "why": "ring_full"}
            records.append((end, note, None))
        return records

    def thin(self, records):
        """What another tool left of the calls, and how many it did not keep: of all ("dense"), or a few of the whole."""
        how, n = self.sampling
        calls = [i for i, item in enumerate(records) if item[2] not in (None, "nested")]
        warm = [i for i in calls if not records[i][2].warmup and not records[i][2].cold]
        kept = set(self.rng.sample(warm, n)) if how == "dense" else set(warm) - set(self.rng.sample(warm, n))
        gone = set(warm) - kept
        start, end = min(records[i][1]["mono_ns"] for i in warm) - self.base, max(records[i][0] for i in warm)
        self.spans.append((start, end))
        self.declared.append(("cuda", start, end))
        note = {**self.head("ingero", "lost", start, None, end - start), "stream": "cuda", "count": len(gone), "why": "sampled"}
        return [item for i, item in enumerate(records) if i not in gone] + [(end, note, None)]

    def stream(self, tool, records):
        """Lines in the order of ends, neighbours on different CPUs now and then the wrong way round."""
        keyed = sorted(records, key=lambda r: (r[0] + (self.rng.randint(0, self.inversion_ns) if self.inversion_ns and r[2] not in (None, "sys", "life") else 0)))
        lines = [self.opening(tool)] + [rec for _, rec, _ in keyed]
        seen = sum(1 for r in keyed if r[2] is not None)
        end = self.sched_end if tool == "ingero-sched" else self.end
        if self.killed != tool[7:]:
            lines.append({**self.head("ingero", "end", end), "stream": tool[7:], "seen": seen, "written": seen, "lost": {}})
        return "".join(json.dumps(rec, separators=(",", ":")) + "\n" for rec in lines)

    def render(self):
        """The two streams; from here on `seen_calls` and `touched` answer by what is in them."""
        cuda = self.lose("cuda", self.cuda_records())
        sched = self.lose("sched", self.sched_records())
        kept = {id(c) for _, _, c in cuda if c not in (None, "nested")}
        # calls whose records were lost were made all the same: the truth keeps them
        self.visible = {p: [c for c in p.calls if c.start >= w and c.start < self.end] for p, w in self.cuda_watch.items()}
        if self.killed == "cuda":
            self.visible = {p: [c for c in calls if id(c) in kept] for p, calls in self.visible.items()}
        if self.killed == "sched":
            # what was going on at the last record of the stream may have begun at any time before
            self.sched_end = max([end for end, _, _ in sched] or [self.start])
        self.written = kept
        self.off_written = {id(o) for _, _, o in sched if o not in (None, "life", "sys")}
        return self.stream("ingero-cuda", cuda), self.stream("ingero-sched", sched)
