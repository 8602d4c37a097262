#!/usr/bin/env python3
"""How quick and how large ingero-join and ingero-chain are, beside other programs that read the same bytes.

  BIN=target/release bench_filters.py [MB [GB]]

MB (281) is the size of the stream that ingero-chain is compared on: with DuckDB (two threads) computing count, p50 and p99 by pid and op of
it, and with jq reading it. GB (none) is the size of a generated stream, never stored, on which the tools' peak memory is
measured. What isn't installed is left out and said. Nothing here passes or fails.
"""
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time

BIN = os.environ.get("BIN", "target/release")
RUNS = int(os.environ.get("RUNS", "3"))
STEP_NS = 20_000
GEN = [sys.executable, os.path.abspath(__file__), "--generate"]


def record(src, op, dur, rest):
    return ('{"src":"%s","op":"%s","mono_ns":%%d,"ts":"2026-11-30T12:00:01.001100000Z","dur_ns":%d,"pid":100,"tid":%d,"comm":"pt_main_thread",%s}\n'
            % (src, op, dur, 100 + (dur % 3), rest.replace("%", "%%")))


def block(kind):
    """A thousand records of a kind of stream, with a place for the time of each."""
    host = '"ret":0,"depth":0,"stream":"0x7","host":{"off_ns":0,"preempted_ns":0,"runq_ns":0,"sleep_ns":0,"io_ns":0,"unknown_ns":0,"switches":0,"pages":0,"page_bytes":0,"by":[],"watched":true}'
    call = host if kind == "joined" else '"ret":0,"depth":0,"stream":"0x7","func":"0x55d0c0ffee00","grid":[64,1,1],"block":[256,1,1]'
    off = '"state":"S","runq_ns":900,"cpu":3,"by":{"pid":0,"tid":0,"comm":"swapper/3"},"prev":{"pid":0,"tid":0,"comm":"swapper/3"},"waker":{"pid":200,"tid":200,"comm":"pt_data_worker"}'
    lines = []
    for i in range(1000):
        if kind == "sched" or kind == "joined" and i % 3 == 0:
            lines.append(record("sched", "sched_switch", 3000 + i * 7 % 900, off))
        else:
            op = ("cudaLaunchKernel", "cudaMemcpyAsync", "cudaStreamSynchronize")[i % 7 % 3]
            lines.append(record("cudart", op, 5000 + i * 37 % 9000, call))
    return "".join(lines)


def generate(kind, size_bytes, out):
    tool = {"cuda": "ingero-cuda", "sched": "ingero-sched", "joined": "ingero-join"}[kind]
    head = {"src": "ingero", "op": "start", "mono_ns": 10**9, "schema": 1, "tool": tool, "version": "0", "host": "box", "boot_id": "b", "clock": "monotonic",
            "wall_offset_ns": "1780000000000000000", "kernel": "6.8.0", "filter": {}, "probes": {}}
    out.write((json.dumps(head) + "\n").encode())
    for stream in ("cuda", "sched"):
        if kind in (stream, "joined"):
            watch = {"src": "ingero", "op": "watch", "mono_ns": 10**9, "pid": 100, "tid": 100, "stream": stream}
            out.write((json.dumps(watch) + "\n").encode())
    text, at, written = block(kind), 10**9, 0
    while written < size_bytes:
        data = (text % tuple(range(at, at + 1000 * STEP_NS, STEP_NS))).encode()
        at += 1000 * STEP_NS
        written += out.write(data)
    out.write(b'{"src":"ingero","op":"end","mono_ns":%d}\n' % at)


def timed(command):
    """Of some runs the best wall time and the least CPU time, in seconds, and the peak memory, in MiB."""
    best, cpu, peak = None, None, 0
    for _ in range(RUNS):
        began = time.monotonic()
        child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        _, status, usage = os.wait4(child.pid, 0)
        took = time.monotonic() - began
        if status:
            raise RuntimeError("%s ended with %d" % (command[0], status))
        spent = usage.ru_utime + usage.ru_stime
        best, cpu, peak = min(best or took, took), min(cpu or spent, spent), max(peak, usage.ru_maxrss // 1024)
    return best, cpu, peak


DUCKDB = """
import duckdb, sys
db = duckdb.connect()
db.execute("set threads to 2")
print(db.execute('''select pid, op, count(*), quantile_cont(dur_ns, 0.5), quantile_cont(dur_ns, 0.99)
  from read_json(?, format='newline_delimited', columns={src: 'VARCHAR', op: 'VARCHAR', pid: 'BIGINT', dur_ns: 'BIGINT'})
  where src in ('cudart', 'cuda', 'nccl') group by pid, op''', [sys.argv[1]]).fetchall())
"""


def compare(megabytes):
    with tempfile.TemporaryDirectory() as work:
        path = os.path.join(work, "joined.ndjson")
        with open(path, "wb") as out:
            generate("joined", megabytes * 1_000_000, out)
        chain, cpu, peak = timed([os.path.join(BIN, "ingero-chain"), path])
        print("ingero-chain on %d MB: %.2f s, %.2f s of CPU, peak %d MiB (best of %d)" % (megabytes, chain, cpu, peak, RUNS))
        if importlib.util.find_spec("duckdb"):
            duck, duck_cpu, _ = timed([sys.executable, "-c", DUCKDB, path])
            print("  DuckDB, 2 threads, count, p50 and p99 by pid and op: %.2f s, %.2f s of CPU; chain takes %.2f of the time, %.2f of the CPU time"
                  % (duck, duck_cpu, chain / duck, cpu / duck_cpu))
        else:
            print("  DuckDB is not installed (pip install duckdb)")
        if shutil.which("jq"):
            jq, jq_cpu, _ = timed(["jq", "-n", "reduce inputs as $r (0; . + ($r.dur_ns // 0))", path])
            print("  jq, summing dur_ns: %.2f s, %.2f s of CPU; %.0f times the CPU time of chain" % (jq, jq_cpu, jq_cpu / cpu))
        else:
            print("  jq is not installed")


def piped(command, kinds, size_bytes):
    """Peak memory in MiB and wall seconds of `command`, reading generated streams through pipes in the places marked."""
    gens, fds = [], []
    for kind in kinds:
        gen = subprocess.Popen(GEN + [kind, str(size_bytes // len(kinds))], stdout=subprocess.PIPE)
        gens.append(gen)
        fds.append(gen.stdout.fileno())
    began = time.monotonic()
    child = subprocess.Popen(command + ["/dev/fd/%d" % fd for fd in fds], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, pass_fds=fds)
    for gen in gens:
        gen.stdout.close()
    _, status, usage = os.wait4(child.pid, 0)
    for gen in gens:
        gen.wait()
    if status:
        raise RuntimeError("%s ended with %d" % (command[0], status))
    return usage.ru_maxrss // 1024, time.monotonic() - began


def memory(gigabytes):
    size = int(gigabytes * 1_000_000_000)
    for tool, kinds in (("ingero-join", ["cuda", "sched"]), ("ingero-chain", ["joined"])):
        peak, took = piped([os.path.join(BIN, tool)], kinds, size)
        print("%s on %g GB from a pipe: peak %d MiB (goal 64), %.0f s with its generator" % (tool, gigabytes, peak, took))


def main():
    if sys.argv[1:2] == ["--generate"]:
        with os.fdopen(1, "wb", 1 << 20) as out:
            return generate(sys.argv[2], int(sys.argv[3]), out)
    compare(int(sys.argv[1]) if len(sys.argv) > 1 else 281)
    if len(sys.argv) > 2:
        memory(float(sys.argv[2]))


if __name__ == "__main__":
    main()
