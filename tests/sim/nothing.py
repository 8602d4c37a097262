#!/usr/bin/env python3
"""Nothing seen is not nothing found: streams on which ingero-chain cannot judge, and the exit status where it can.

    nothing.py BIN_DIR
"""

import json
import os
import re
import subprocess
import sys

from world import BOOT, BOOTED, ts

CASES = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "cases")
FORMATS = ("text", "ndjson", "csv", "html", "folded", "prometheus", "otlp", "logfmt")
B = 1_000_000_000


def record(src, op, at_ms, **more):
    mono = B + at_ms * 1_000_000
    return {"src": src, "op": op, "mono_ns": mono, "ts": ts(mono), **more}


def start(tool, schema=1):
    return record("ingero", "start", 0, schema=schema, tool=tool, version="0.0.0", host="box", boot_id=BOOT, clock="monotonic",
                  wall_offset_ns=str(BOOTED), kernel="6.8.0", filter={}, probes={"attached": [], "missing": [], "mode": "test"})


def end(stream, seen=0):
    return record("ingero", "end", 3000, stream=stream, seen=seen, written=seen, lost={})


def watch(stream):
    return record("ingero", "watch", 1, pid=100, tid=100, comm="train", why="cuda" if stream == "cuda" else "asked", stream=stream)


def off_cpu():
    return [record("sched", "sched_switch", 10 * i, dur_ns=5_000_000, pid=100, tid=100, comm="train", state="S", runq_ns=0, cpu=0) for i in range(1, 250)]


def healthy(schema=1):
    """Steps that leave the GPU nothing to wait for: a launch and a synchronise that waits for it, back to back."""
    out = [start("ingero-cuda", schema), watch("cuda")]
    for i in range(200):
        at = 10 + 10 * i
        out.append(record("cudart", "cudaLaunchKernel", at, dur_ns=10_000, pid=100, tid=100, comm="train", ret=0, depth=0, stream="0x7", func="0x1000"))
        sync = record("cudart", "cudaStreamSynchronize", at, dur_ns=9_950_000, pid=100, tid=100, comm="train", ret=0, depth=0, stream="0x7")
        sync["mono_ns"] += 20_000
        sync["ts"] = ts(sync["mono_ns"])
        out.append(sync)
    return out + [end("cuda", 400)]


def lines(records):
    return "".join(json.dumps(r, separators=(",", ":")) + "\n" for r in records).encode()


def nothing_seen():
    """(name, input of ingero-chain)."""
    both = [start("ingero-cuda"), start("ingero-sched")]
    yield "an empty input, as of tracers that were refused", b""
    yield "two streams that nobody was watched in", lines([*both, end("cuda"), end("sched")])
    yield "tracers that were killed at once", lines(both)
    yield "a watched process without a CUDA call", lines([*both, watch("cuda"), watch("sched"), *off_cpu(), end("cuda"), end("sched", 249)])
    yield "the scheduler's tracer alone", lines([start("ingero-sched"), watch("sched"), *off_cpu(), end("sched", 249)])
    yield "objects that are no recording", lines([{"level": "info", "msg": f"line {i}"} for i in range(20)])
    yield "lines that are no objects", b"GPU-Util 37%\nsomething else\n" * 5
    yield "a schema of the future", lines(healthy(schema=99))


def chain(bin_dir, data, *args):
    return subprocess.run([f"{bin_dir}/ingero-chain", *args], input=data, capture_output=True, timeout=60)


def joined(bin_dir, *paths):
    return subprocess.run([f"{bin_dir}/ingero-join", *paths], stdin=subprocess.DEVNULL, capture_output=True, timeout=60).stdout


def sentences(out):
    """What a summary says in words, without its numbers."""
    found = []
    for line in out.splitlines():
        try:
            rec = json.loads(line)
        except ValueError:
            continue
        if isinstance(rec, dict) and rec.get("op") == "summary":
            if rec.get("unknown_schema"):
                found.append("a schema that is not known")
            todo = [rec]
            while todo:
                value = todo.pop()
                if isinstance(value, str) and " " in value:
                    found.append(re.sub(r"\d+", "", value))
                elif isinstance(value, (dict, list)):
                    todo += value.values() if isinstance(value, dict) else value
    return set(found)


def silent(bin_dir, name, data, usual):
    """What is wrong with the answer to a stream in which nothing can be judged."""
    done = chain(bin_dir, data, "--fail-on", "medium", "--format", "ndjson")
    told = done.stderr.decode(errors="replace").strip().splitlines()
    if done.returncode != 2:
        yield f"{name}: exit status {done.returncode} with --fail-on, should be 2"
    if not told:
        yield f"{name}: not a line on stderr"
    elif len(told) > (3 if "no objects" in name else 1) or not all(line.startswith("ingero-chain: ") for line in told):
        yield f"{name}: stderr is {told[:4]}, should be one line"
    if not sentences(done.stdout) - usual:
        yield f"{name}: the summary says nothing of it: {done.stdout[-300:]!r}"
    plain = chain(bin_dir, data, "--format", "ndjson")
    if not plain.stderr.strip():
        yield f"{name}: not a line on stderr without --fail-on"
    for how in formats(bin_dir):
        got = chain(bin_dir, data, "--fail-on", "medium", "--format", how).returncode
        if got != 2:
            yield f"{name}: exit status {got} with --fail-on and --format {how}, should be 2"


def formats(bin_dir):
    """Those of the formats in the design that this build has."""
    known = chain(bin_dir, b"", "--help").stdout.decode()
    return [how for how in FORMATS if re.search(rf"\b{how}\b", known)]


def judged(bin_dir):
    """--fail-on with each format, --list and --explain, on a stream that is healthy and on one that is not."""
    good = lines(healthy())
    bad = joined(bin_dir, *(os.path.join(CASES, "51-two-idles-a-step", f"{name}.ndjson") for name in ("cuda", "sched")))
    found = [json.loads(line) for line in chain(bin_dir, bad, "--format", "ndjson").stdout.splitlines()]
    ids = [r["id"] for r in found if r.get("op") == "gap" and "id" in r]
    ways = [("--format", how) for how in formats(bin_dir)] + [("--list",)] + [("--explain", i) for i in ids[:1]]
    if not ids:
        yield "case 51: no gap with an id"
    for way in ways:
        got = chain(bin_dir, bad, "--fail-on", "medium", *way).returncode
        if got != 1:
            yield f"case 51: exit status {got} with --fail-on medium and {' '.join(way)}, should be 1"
        got = chain(bin_dir, good, "--fail-on", "low", *way).returncode if way[0] != "--explain" else 0
        if got != 0:
            yield f"a healthy stream: exit status {got} with --fail-on low and {' '.join(way)}, should be 0"


def problems(bin_dir):
    healthy_run = chain(bin_dir, lines(healthy()), "--format", "ndjson")
    usual = sentences(healthy_run.stdout)
    if healthy_run.returncode or healthy_run.stderr:
        yield f"a healthy stream: exit status {healthy_run.returncode}, stderr {healthy_run.stderr!r}"
    for name, data in nothing_seen():
        yield from silent(bin_dir, name, data, usual)
    yield from judged(bin_dir)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    wrong = list(problems(sys.argv[1]))
    print("\n".join(wrong) or "nothing seen, nothing found: all right")
    sys.exit(1 if wrong else 0)
