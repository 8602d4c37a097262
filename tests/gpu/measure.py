"""What a workload measures about itself: its own timers, the kernel's account of its threads, the profiler's view of the GPU.

Used by the scripts beside it, whose last line on stdout is a JSON object to be held against what a trace of the same run says.
"""
import contextlib
import json
import os
import tempfile
import time

import torch
from torch.profiler import ProfilerActivity, profile

DEVICE_WORK = ("kernel", "gpu_memcpy", "gpu_memset")


def pin(cpus):
    """Restricts this process, and what it starts from here on, to the first `cpus` CPUs; None leaves it alone."""
    if cpus:
        os.sched_setaffinity(0, range(cpus))
        torch.set_num_threads(cpus)


def schedstat(pid):
    """(ns on a CPU, ns runnable without one) over all living threads of a process; zeros when it is gone."""
    on_cpu = delay = 0
    try:
        for tid in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{tid}/schedstat", encoding="ascii") as f:
                ran, waited, _ = map(int, f.read().split())
            on_cpu, delay = on_cpu + ran, delay + waited
    except (FileNotFoundError, ProcessLookupError):
        pass
    return on_cpu, delay


def profiler():
    """A profiler of what the GPU does. The first one of a process takes seconds to start, see `begin`."""
    return profile(activities=[ProfilerActivity.CUDA if torch.cuda.is_available() else ProfilerActivity.CPU])


def begin(args):
    """What each workload does first: CPUs, and the profiler's own start, so that it lies in the process's and not in the loop."""
    pin(args.cpus)
    torch.manual_seed(1)
    if args.profile:
        with profiler():
            torch.zeros(1, device=args.device).sum().item()


class Loop:
    """One measured loop: how long it took, how much of that it waited for its data, what its workers did.

    with Loop() as loop:
        for batch in loop.batches(source): ...
    """

    def __init__(self, profile=False):
        self.waited_ns = self.count = 0
        self.spent = {}
        self.workers = {}
        self.profiler = profiler() if profile else None

    def __enter__(self):
        if self.profiler:
            self.profiler.__enter__()
        with open("/proc/self/schedstat", encoding="ascii") as f:
            self.main_before = [int(number) for number in f.read().split()]
        self.began_ns = time.monotonic_ns()
        return self

    @contextlib.contextmanager
    def timed(self, part):
        """Adds the time of a block to `spent[part]`."""
        began = time.perf_counter_ns()
        try:
            yield
        finally:
            self.spent[part] = self.spent.get(part, 0) + time.perf_counter_ns() - began

    def batches(self, source):
        """The items of `source`, counting the time spent in asking for them."""
        source = iter(source)
        while True:
            asked_ns = time.monotonic_ns()
            item = next(source, None)
            self.waited_ns += time.monotonic_ns() - asked_ns
            if item is None:
                return
            for worker in getattr(source, "_workers", ()):
                # A worker that has done its last item may be gone by now: what it had used before stays.
                self.workers[worker.pid] = max(schedstat(worker.pid), self.workers.get(worker.pid, (0, 0)))
            self.count += 1
            yield item

    def __exit__(self, *error):
        self.ended_ns = time.monotonic_ns()
        with open("/proc/self/schedstat", encoding="ascii") as f:
            after = [int(number) for number in f.read().split()]
        self.main = [b - a for a, b in zip(self.main_before, after)]
        if self.profiler:
            self.profiler.__exit__(*error)

    def gpu_busy_ns(self):
        """Length of the union of all kernels and copies that the profiler saw on the GPU in the loop."""
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "trace.json")
            self.profiler.export_chrome_trace(path)
            with open(path, encoding="utf-8") as f:
                events = json.load(f)["traceEvents"]
        spans = sorted((e["ts"], e["ts"] + e["dur"]) for e in events if e.get("cat") in DEVICE_WORK)
        busy = end = 0.0
        for start, stop in spans:
            busy += max(0.0, stop - max(start, end))
            end = max(end, stop)
        return round(busy * 1000)

    def report(self, **what):
        """Prints the last line."""
        what |= {
            "pid": os.getpid(), "cpus": len(os.sched_getaffinity(0)), "batches": self.count,
            "began_mono_ns": self.began_ns, "loop_ns": self.ended_ns - self.began_ns, "waited_for_data_ns": self.waited_ns,
            "main_thread": {"on_cpu_ns": self.main[0], "run_delay_ns": self.main[1]},
            "workers": {"n": len(self.workers), "on_cpu_ns": sum(w[0] for w in self.workers.values()),
                        "run_delay_ns": sum(w[1] for w in self.workers.values())},
        }
        if self.profiler:
            what["gpu_busy_ns"] = self.gpu_busy_ns()
        print(json.dumps(what), flush=True)
