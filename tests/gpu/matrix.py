#!/usr/bin/env python3
"""Runs the workloads beside this file under both tracers and puts what the chains say beside what the workloads measured.

    matrix.py --bin target/release --out DIR [--only REGEX]      run them, as root, on a machine with a GPU
    matrix.py --bin target/release --out DIR --again             judge the streams in DIR once more, anywhere

For each run, DIR gets NAME.{cuda,sched}.ndjson.gz (what was traced), NAME.txt (the report) and NAME.json (the row); the last
thing printed is the table in Markdown.
"""
import argparse
import gzip
import json
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).parent
TRACERS = "cuda", "sched"


def python(script, *args):
    return [sys.executable, str(HERE / script), *args]


def runs():
    """(name, command, CPUs that a rival burns). Those named sample-* become recordings in tests/samples: no profiler in them."""
    small = ["--rows", "2800000", "--batch", "262144", "--cpus", "4"]
    yield "sample-starved", python("inference.py", "--feed", "loader", "--workers", "4", "--passes", "3", *small), 0
    yield "sample-fixed", python("inference.py", "--passes", "60", *small), 0
    for cpus in (None, 4, 2):
        pinned = ["--cpus", str(cpus)] if cpus else []
        where = f"{cpus}cpus" if cpus else "all"
        yield f"direct-{where}", python("inference.py", "--passes", "5", *pinned), 0
        for workers in (0, 4, 12):
            # Without workers the loop takes 40 s for all rows, whatever it is pinned to.
            rows = ["--rows", "2800000"] if workers == 0 and cpus else []
            yield (f"workers{workers}-{where}",
                   python("inference.py", "--feed", "loader", "--workers", str(workers), *rows, *pinned), 0)
    yield "training-gpu", python("training.py", "--feed", "gpu", "--steps", "2000"), 0
    yield "training-workers0", python("training.py", "--workers", "0", "--steps", "40"), 0
    yield "training-workers4", python("training.py", "--workers", "4", "--steps", "150", "--cpus", "4"), 0
    yield "training-workers4-stress", python("training.py", "--workers", "4", "--steps", "150", "--cpus", "4"), 4
    yield "gpu-bound", python("gpu_bound.py"), 0
    yield "compiled", python("gpu_bound.py", "--how", "compiled", "--steps", "2000"), 0
    yield "graph", python("gpu_bound.py", "--how", "graph"), 0
    for kind in ("shared", "static"):
        if (HERE / f"launch-{kind}").exists():
            yield f"launch-{kind}", [str(HERE / f"launch-{kind}"), "20000", "5"], 0


def last_object(text):
    """The last line of `text` that is a JSON object, else {}."""
    for line in reversed(text.splitlines()):
        if line.startswith("{"):
            return json.loads(line)
    return {}


def traced(args, name, command, rivals):
    """Runs one workload under both tracers; its row."""
    streams = [args.out / f"{name}.{which}.ndjson" for which in TRACERS]
    tracers = [subprocess.Popen([f"{args.bin}/ingero-{which}", "-q", "-o", stream]) for which, stream in zip(TRACERS, streams)]
    rival = subprocess.Popen(python("stress.py", str(rivals))) if rivals else None
    try:
        time.sleep(1.5)
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False, timeout=180)
    finally:
        if rival:
            rival.terminate()
            rival.wait()
        stopping = time.monotonic()
        for tracer in tracers:
            tracer.send_signal(signal.SIGINT)
        codes = [tracer.wait(timeout=60) for tracer in tracers]
    stopped_s = time.monotonic() - stopping
    row = judged(args, name, last_object(done.stdout), streams)
    row |= {"command_rc": done.returncode, "tracer_rc": codes, "stop_s": round(stopped_s, 2)}
    for stream in streams:
        with open(stream, "rb") as plain, gzip.open(f"{stream}.gz", "wb") as packed:
            shutil.copyfileobj(plain, packed)
        stream.unlink()
    return row


def judged(args, name, truth, streams):
    """Joins the streams, writes the report on them, and puts the chains beside the truth."""
    joined = args.out / f"{name}.joined.ndjson"
    with open(joined, "wb") as f:
        subprocess.run([f"{args.bin}/ingero-join", *streams], stdout=f, check=False)
    chain = [f"{args.bin}/ingero-chain", joined, "--format"]
    text = subprocess.run([*chain, "text", "--per-process"], capture_output=True, text=True, check=False).stdout
    (args.out / f"{name}.txt").write_text(text, encoding="utf-8")
    chains = subprocess.run([*chain, "ndjson"], capture_output=True, text=True, check=False).stdout
    with open(joined, encoding="utf-8") as f:
        ingero = [json.loads(line) for line in f if '"src":"ingero"' in line]
    joined.unlink()
    return row_of(name, truth, [json.loads(line) for line in chains.splitlines()], ingero)


def row_of(name, truth, chains, ingero):
    """What was found beside what was measured."""
    ends = [r for r in ingero if r["op"] == "end"]
    watches = [r for r in ingero if r["op"] == "watch"]
    found = [c for c in chains if c["src"] == "chain" and c["op"] in ("gap", "slow_call", "drop", "stall", "oom")]
    pid = truth.get("pid")
    gaps = [c for c in found if c["op"] == "gap" and pid in (None, c["pid"])]
    causes = {}
    for gap in gaps:
        for cause in gap["causes"] + [{"cause": "unexplained", "ns": gap["unexplained_ns"]}]:
            causes[cause["cause"]] = causes.get(cause["cause"], 0) + cause["ns"]
    return {
        "name": name, "truth": truth,
        "chains": [{k: c[k] for k in ("op", "severity", "call", "n", "lost_ns", "lost_share", "summary") if k in c} for c in found],
        "gap_ns": sum(gap["lost_ns"] for gap in gaps), "causes": dict(sorted(causes.items(), key=lambda item: -item[1])),
        "tracers": [{k: e.get(k) for k in ("stream", "seen", "written", "lost", "user_ns", "sys_ns")} for e in ends],
        "layers": sorted({layer for w in watches for layer in w.get("layers", ())}),
    }


def markdown(rows):
    def seconds(ns):
        return f"{ns / 1e9:.2f} s" if ns >= 1e9 else f"{ns / 1e6:.0f} ms"

    yield "| run | loop | waited for data | GPU busy | findings | gaps | causes of the gaps | lost |"
    yield "|---|---|---|---|---|---|---|---|"
    for row in rows:
        truth, gap_ns = row["truth"], row["gap_ns"]
        loop_ns = truth.get("loop_ns")
        busy = f"{100 * truth['gpu_busy_ns'] / loop_ns:.0f} %" if loop_ns and "gpu_busy_ns" in truth else ""
        levels = [c["severity"] for c in row["chains"]]
        found = ", ".join(f"{levels.count(level)} {level}" for level in ("high", "medium", "low") if level in levels) or "none"
        causes = ", ".join(f"{100 * ns / gap_ns:.0f} % {cause}" for cause, ns in row["causes"].items() if ns * 50 >= gap_ns > 0)
        lost = sum(sum(t["lost"].values()) for t in row["tracers"])
        loop = [seconds(loop_ns), seconds(truth["waited_for_data_ns"])] if loop_ns else ["", ""]
        yield "| " + " | ".join([row["name"], *loop, busy, found, seconds(gap_ns) if gap_ns else "", causes, str(lost)]) + " |"


def again(args):
    """The rows of an earlier run, its streams judged by the tools as they are now."""
    for kept in sorted(args.out.glob("*.json")):
        before = json.loads(kept.read_text(encoding="utf-8"))
        name = before["name"]
        row = judged(args, name, before["truth"], [args.out / f"{name}.{which}.ndjson.gz" for which in TRACERS])
        yield before | row


def all_runs(args):
    """The rows of new runs."""
    for name, command, rivals in runs():
        if not re.search(args.only, name):
            continue
        if command[0] == sys.executable and not name.startswith("sample-"):
            command = [*command, "--profile"]
        began = time.monotonic()
        try:
            yield traced(args, name, command, rivals)
        except (subprocess.TimeoutExpired, OSError, ValueError, KeyError) as error:
            print(f"matrix: {name}: {error!r}", file=sys.stderr)
        print(f"matrix: {name}: {time.monotonic() - began:.1f} s", file=sys.stderr, flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", required=True)
    parser.add_argument("--out", required=True, type=pathlib.Path)
    parser.add_argument("--only", default="", metavar="REGEX")
    parser.add_argument("--again", action="store_true", help="run nothing: judge the streams in DIR once more")
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    rows = []
    for row in again(args) if args.again else all_runs(args):
        rows.append(row)
        (args.out / f"{row['name']}.json").write_text(json.dumps(row, indent=1) + "\n", encoding="utf-8")
    print("\n".join(markdown(rows)))


if __name__ == "__main__":
    main()
