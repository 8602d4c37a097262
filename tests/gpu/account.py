#!/usr/bin/env python3
"""Runs the loops of reasons.py and waits.py under both tracers and puts the account of each beside the script's own timers.

    account.py --bin target/release --out DIR [--only REGEX] [--seconds 6]     as root, on a machine with a GPU
    account.py --bin target/release --out DIR --again                          judges the recordings in DIR once more, anywhere

Each loop runs traced, as `ingero-cuda | ingero-join - <(ingero-sched)` into DIR/NAME.joined.ndjson.gz; those of reasons.py once more
without tracers but with torch.profiler, which says how long the GPU was busy. DIR gets NAME.json (both sides in full) and
NAME.txt (the report); the last things printed are the tables in Markdown.
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

from matrix import last_object, python

REASONS = ("data", "decode", "launches", "checkpoint", "empty-cache", "graph", "copies")
WAITS = ("sleep", "gil", "gil-worker", "quota", "http", "pipe", "file-lock", "direct", "fsync", "faults", "server", "polling-server")
FINDINGS = ("total", "gap", "slow_call", "host_calls", "launch_bound", "no_input", "stall", "oom")
PROFILED_S = 2  # the profiler keeps each kernel: of a launch-bound loop, hundreds of thousands
SHOWN = ("idle", "silence", "gpu_wait", "enqueue", "copy", "memory", "load", "other_call", "between")


class Pipeline:
    """Both tracers and ingero-join, from a moment before the block to its end; the joined stream is in `path`."""

    def __init__(self, bin_dir, path):
        self.bin_dir, self.path = bin_dir, path

    def __enter__(self):
        with open(self.path, "wb") as out:
            self.tracers = [subprocess.Popen([f"{self.bin_dir}/ingero-{name}", "-q"], stdout=subprocess.PIPE) for name in ("cuda", "sched")]
            cuda, sched = (tracer.stdout for tracer in self.tracers)
            join = [f"{self.bin_dir}/ingero-join", "-", f"/dev/fd/{sched.fileno()}"]
            self.join = subprocess.Popen(join, stdin=cuda, stdout=out, pass_fds=[sched.fileno()])
            cuda.close()
            sched.close()
        time.sleep(1.5)
        return self

    def __exit__(self, *error):
        for tracer in self.tracers:
            tracer.send_signal(signal.SIGINT)
        self.codes = [process.wait(timeout=60) for process in (*self.tracers, self.join)]


def traced(args, reason):
    """One loop, traced, and where there is a profile to be had once more with the profiler: what both say of themselves."""
    loop = python("reasons.py" if reason in REASONS else "waits.py", reason, "--seconds")
    path = args.out / f"{reason}.joined.ndjson"
    with Pipeline(args.bin, path) as pipeline:
        own = last_object(subprocess.run([*loop, str(args.seconds)], stdout=subprocess.PIPE, text=True, check=False, timeout=180).stdout)
    with open(path, "rb") as plain, gzip.open(f"{path}.gz", "wb") as packed:
        shutil.copyfileobj(plain, packed)
    path.unlink()
    if reason in WAITS:
        return {"reason": reason, "own": own, "profiled": {}, "codes": pipeline.codes}
    profiled = last_object(subprocess.run([*loop, str(PROFILED_S), "--profile"], stdout=subprocess.PIPE, text=True, check=False, timeout=300).stdout)
    return {"reason": reason, "own": own, "profiled": profiled, "codes": pipeline.codes}


def judged(args, run):
    """What ingero-chain says of the recording of this run."""
    chain = [f"{args.bin}/ingero-chain", args.out / f"{run['reason']}.joined.ndjson.gz", "--format"]
    text = subprocess.run([*chain, "text"], capture_output=True, text=True, check=False).stdout
    (args.out / f"{run['reason']}.txt").write_text(text, encoding="utf-8")
    lines = subprocess.run([*chain, "ndjson"], capture_output=True, text=True, check=False).stdout.splitlines()
    mine = [r for r in map(json.loads, lines) if r.get("pid") == run["own"].get("pid")]
    return run | {"account": next((r for r in mine if r["op"] == "account"), {}), "findings": [r for r in mine if r["op"] in FINDINGS]}


def markdown(runs):
    def seconds(ns):
        return f"{ns / 1e9:.2f}" if ns else "0"

    yield "| loop | its own timers, s | GPU busy | account, s | lost | launch-bound | findings |"
    yield "|---|---|---|---|---|---|---|"
    for run in runs:
        own, profiled, account = run["own"], run["profiled"], run["account"]
        timers = [f"loop {seconds(own.get('loop_ns', 0))}"]
        timers += [f"data {seconds(own.get('waited_for_data_ns', 0))}"] * bool(own.get("waited_for_data_ns"))
        timers += [f"{part} {seconds(ns)}" for part, ns in own.get("spent_ns", {}).items()]
        busy = f"{100 * profiled['gpu_busy_ns'] / profiled['loop_ns']:.0f} %" if "gpu_busy_ns" in profiled else ""
        counted = f" (driver {account['gpu_busy_pct']:.0f} %)" if account.get("gpu_busy_pct") is not None else ""
        classes = account.get("classes", {})
        said = [f"loop {seconds(account.get('loop_ns', 0))}"] + [f"{name} {seconds(classes[name])}" for name in SHOWN if classes.get(name, 0) >= 5_000_000]
        bound = account.get("launch_bound_ns")
        bound = f"{seconds(bound)} ± {seconds(account.get('launch_bound_err_ns', 0))}" if bound is not None else ""
        lost = classes.get("idle", 0) + classes.get("silence", 0)
        yield "| " + " | ".join([run["reason"], ", ".join(timers), busy + counted, ", ".join(said), f"{seconds(lost)}, by the script {seconds(own.get('own_ns', 0))}",
                                 bound, "; ".join(map(brief, run["findings"])) or "none"]) + " |"


def markdown_waits(runs):
    def cause(line):
        who = ", ".join(f"{w['comm']} {w['ns'] / 1e9:.2f}" for w in line.get("who", [])[:2])
        where = "".join(f" in {w['fn']}:{w['line']}" for w in line.get("where", [])[:1])
        return f"{100 * line['share']:.0f} % `{line['cause']}`{f' ({who})' if who else ''}{where}"

    def wait(line):
        on = line.get("on", {})
        return f"{line['ns'] / 1e9:.2f} s `{line['in']}` {on.get('kind', '')}, {line['n']} times" + (f", by {line['by']['comm']}" if "by" in line else "")

    yield "| loop | its own timer of the wait, s | lost, s | causes | waits | sleep and unexplained |"
    yield "|---|---|---|---|---|---|"
    for run in runs:
        own = run["own"]
        main = max((f for f in run["findings"] if f["op"] in ("gap", "total")), key=lambda f: f["lost_ns"], default={"lost_ns": 0, "causes": []})
        vague = main.get("unexplained_ns", 0) + sum(c["ns"] for c in main["causes"] if c["cause"] in ("sleep", "off_cpu"))
        throttled = f", throttled {own['throttled_ns'] / 1e9:.2f}" if "throttled_ns" in own else ""
        kinds = "; ".join(f"{f['severity']} {f['op']}" for f in run["findings"])
        yield "| " + " | ".join([run["reason"], f"{own.get('own_ns', 0) / 1e9:.2f}{throttled}", f"{main['lost_ns'] / 1e9:.2f} ({kinds})",
                                 ", ".join(map(cause, main["causes"][:3])), "; ".join(map(wait, main.get("waits", [])[:2])),
                                 f"{100 * vague / max(1, main['lost_ns']):.1f} %"]) + " |"


def brief(finding):
    """A finding in a few words, with its first cause."""
    cause = next((f", {c['share']:.0%} `{c['cause']}`" for c in finding.get("causes", []) if "share" in c), "")
    return f"{finding['severity']} {finding['op']} {finding.get('call') or ''} {100 * finding.get('lost_share', 0):.0f} %{cause}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", required=True)
    parser.add_argument("--out", required=True, type=pathlib.Path)
    parser.add_argument("--only", default="", metavar="REGEX")
    parser.add_argument("--seconds", type=float, default=6.0, help="about how long each loop takes")
    parser.add_argument("--again", action="store_true", help="run nothing: judge the recordings in DIR once more")
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    runs = []
    for reason in [r for r in REASONS + WAITS if re.search(args.only, r)]:
        kept = args.out / f"{reason}.json"
        if args.again and not kept.exists():
            continue
        try:
            run = judged(args, json.loads(kept.read_text(encoding="utf-8")) if args.again else traced(args, reason))
        except (subprocess.TimeoutExpired, OSError, ValueError, KeyError) as error:
            print(f"account: {reason}: {error!r}", file=sys.stderr)
            continue
        kept.write_text(json.dumps(run, indent=1) + "\n", encoding="utf-8")
        runs.append(run)
        print(f"account: {reason}: {'re-judged' if args.again else run['codes']}", file=sys.stderr, flush=True)
    print("\n".join(markdown([run for run in runs if run["reason"] in REASONS])))
    print()
    print("\n".join(markdown_waits([run for run in runs if run["reason"] in WAITS])))


if __name__ == "__main__":
    main()
