#!/usr/bin/env python3
"""What tracing costs on this machine, printed beside what it is to be compared with. Nothing here passes or fails.

  BIN=target/release bench.py [CALLS]

The target is the workload on the stub library: calls of cuLaunchKernel that do nothing, so that a call's time is the probes'.
It is the calling thread's CPU time (schedstat), in which probes run and others do not. Each figure is the median of RUNS runs.
"""
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time

BIN = os.environ.get("BIN", "target/release")
CALLS = int(sys.argv[1]) if len(sys.argv) > 1 else 300_000
RUNS = 5
DRIVER, RUNTIME = "cuLaunchKernel", "cudaLaunchKernel"
os.environ["PATH"] += ":/usr/sbin:/sbin"


class Target:
    """A workload that waits at its gate until it is let go."""

    def __init__(self, step, threads=1):
        command = [os.path.join(BIN, "ingero-workload"), "calls", "--gate", "--threads", str(threads), "--step", step]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.pid = json.loads(self.process.stdout.readline())["pid"]
        while "libcuda" not in open("/proc/%d/maps" % self.pid).read():
            time.sleep(0.005)

    def library(self, name):
        """A library of it that can be opened from here."""
        for line in open("/proc/%d/maps" % self.pid):
            if name in line:
                return line.split()[-1]
        raise LookupError(name)

    def run(self):
        """CPU nanoseconds of its threads for one call."""
        self.process.stdin.write(".")
        self.process.stdin.close()
        ended = json.loads(self.process.stdout.readline())
        self.process.wait()
        calling = [thread for thread in ended["threads"] if thread["calls"]]
        return sum(thread["cpu_ns"] for thread in calling) / ended["calls"]

    def drop(self):
        self.process.kill()
        self.process.wait()


class Tracer:
    """ingero-cuda on a target, from its first watch record to its end."""

    def __init__(self, target, mode="auto", *more):
        self.records = tempfile.NamedTemporaryFile()
        # tracefs for the tier that needs it, in a mount namespace of its own.
        mount = "[ -e /sys/kernel/tracing/uprobe_events ] || mount -t tracefs none /sys/kernel/tracing; exec \"$@\""
        mounted = ["unshare", "--mount", "sh", "-c", mount, "sh"]
        command = mounted + [os.path.join(BIN, "ingero-cuda"), "--quiet", "--pid", str(target.pid), "--probe-mode", mode, *more]
        self.began = time.monotonic()
        self.process = subprocess.Popen(command, stdout=self.records)
        while b'"watch"' not in self.head():
            if self.process.poll() is not None:
                raise RuntimeError("ingero-cuda --probe-mode %s ended with %d" % (mode, self.process.returncode))
            time.sleep(0.001)
        self.attach_s = time.monotonic() - self.began

    def head(self):
        with open(self.records.name, "rb") as f:
            return f.read(8192)

    def stop(self):
        """Its `end` record; `detach_s` is from the signal to its end."""
        began = time.monotonic()
        self.process.send_signal(signal.SIGINT)
        self.process.wait()
        self.detach_s = time.monotonic() - began
        with open(self.records.name, "rb") as f:
            f.seek(-min(4096, os.fstat(f.fileno()).st_size), os.SEEK_END)
            return json.loads(f.read().splitlines()[-1])


def median(measure):
    return statistics.median(measure() for _ in range(RUNS))


def untraced(op):
    return median(Target("%s*%d" % (op, CALLS)).run)


def by_bpftrace(program):
    def once():
        target = Target("%s*%d" % (DRIVER, CALLS))
        script = program.replace("LIBRARY", target.library("libcuda.so"))
        with tempfile.TemporaryFile() as said:
            tracer = subprocess.Popen(["bpftrace", "-B", "full", "-e", script], stdout=subprocess.DEVNULL, stderr=said)
            # It says on stdout, which is not read, that it attaches; a mapped probe shows in the target's code instead.
            time.sleep(2)
            if tracer.poll() is not None:
                said.seek(0)
                raise RuntimeError("bpftrace: %s" % said.read().decode("utf-8", "replace").strip())
            ns = target.run()
            tracer.send_signal(signal.SIGINT)
            tracer.wait()
        return ns
    return median(once)


def by_ingero(op, mode, *more):
    attach, detach = [], []

    def once():
        target = Target("%s*%d" % (op, CALLS))
        try:
            tracer = Tracer(target, mode, *more)
        except RuntimeError:
            target.drop()
            raise
        ns = target.run()
        tracer.stop()
        attach.append(tracer.attach_s)
        detach.append(tracer.detach_s)
        return ns
    return median(once), statistics.median(attach), statistics.median(detach)


def throughput():
    """Records a second through a pipe to a fast reader, with four threads calling as fast as they can; the `end` record."""
    target = Target("%s*%d" % (DRIVER, CALLS), threads=4)
    reader = subprocess.Popen(["tail", "-n", "1"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    command = [os.path.join(BIN, "ingero-cuda"), "--pid", str(target.pid)]
    tracer = subprocess.Popen(command, stdout=reader.stdin, stderr=subprocess.PIPE)
    reader.stdin.close()
    # The first word to people is that it watches the target.
    tracer.stderr.readline()
    began = time.monotonic()
    target.run()
    if tracer.poll() is None:
        tracer.send_signal(signal.SIGINT)
    tracer.wait()
    took = time.monotonic() - began
    end = json.loads(reader.stdout.read())
    return end["written"] / took, end


def line(what, ns, pair=None, printing=None, note=""):
    print("%-58s %9.0f ns%s%s%s" % (
        what, ns,
        "   %5.2f x the empty pair" % (ns / pair) if pair else "",
        "   %5.2f x bpftrace printing" % (ns / printing) if printing else "", note))


def main():
    print("%d calls a run, median of %d runs, kernel %s, %d CPUs" % (CALLS, RUNS, os.uname().release, os.cpu_count()))
    base = median(lambda: Target("%s*%d" % (DRIVER, CALLS)).run())
    line("one driver call, untraced", base)
    pair = printing = None
    try:
        pair = by_bpftrace("uprobe:LIBRARY:%s {} uretprobe:LIBRARY:%s {}" % (DRIVER, DRIVER)) - base
        line("  added by an empty entry+return pair (bpftrace)", pair)
        printing = by_bpftrace(
            "uprobe:LIBRARY:%s { @s[tid] = nsecs; } uretprobe:LIBRARY:%s /@s[tid]/ "
            "{ printf(\"%%d %%d %s %%d\\n\", pid, tid, nsecs - @s[tid]); delete(@s[tid]); }" % (DRIVER, DRIVER, DRIVER)) - base
        line("  added by bpftrace printing pid, tid, name, duration", printing, pair)
    except (OSError, RuntimeError) as e:
        print("  nothing to compare with: %s" % e)
    modes = ["session", "multi", "tracefs", "perf"]
    times = []
    for mode in modes:
        try:
            ns, attach, detach = by_ingero(DRIVER, mode)
        except RuntimeError as e:
            print("  %s: %s" % (mode, e))
            continue
        line("  added by ingero-cuda, %s" % mode, ns - base, pair, printing)
        times.append((mode, attach, detach))
    outer = median(lambda: Target("%s*%d" % (RUNTIME, CALLS)).run())
    line("one runtime call with its driver call, untraced", outer)
    for mode in modes[:2]:
        try:
            ns, _, _ = by_ingero(RUNTIME, mode)
            line("  added by ingero-cuda, %s (nested call not written)" % mode, ns - outer, pair, printing)
        except RuntimeError as e:
            print("  %s: %s" % (mode, e))
    for mode, attach, detach in times:
        print("%-8s start to first watch record %6.3f s, Ctrl-C to end %6.3f s" % (mode, attach, detach))
    rate, end = throughput()
    busy = (end["user_ns"] + end["sys_ns"]) / 1e9
    print("pipe: %.0f records/s while 4 threads call; %.0f records for each second of ingero-cuda's CPU; lost %s" % (
        rate, end["written"] / busy if busy else 0, end["lost"]))


if __name__ == "__main__":
    main()
