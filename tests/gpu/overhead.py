#!/usr/bin/env python3
"""What tracing costs the workloads beside this file, in pairs of runs without and with both tracers.

    overhead.py --bin target/release --out DIR [--pairs 5] [--only REGEX]

As root, on a machine with a GPU. Prints the tables in Markdown; DIR/overhead.json gets every number. The order within a
pair alternates, so that a machine that warms up or slows down favours neither side.
"""
import argparse
import json
import pathlib
import re
import signal
import statistics
import subprocess
import sys
import time

from matrix import HERE, last_object, python

LOOPS = {
    "inference, DataLoader, 4 workers on 4 CPUs": python(
        "inference.py", "--feed", "loader", "--workers", "4", "--cpus", "4", "--rows", "2800000", "--batch", "262144"),
    "training, data on the GPU, 1000 steps": python("training.py", "--feed", "gpu", "--steps", "1000"),
    "training, DataLoader, 4 workers": python("training.py", "--workers", "4", "--steps", "150"),
}
TIERS = ("session", "multi", "tracefs")


class Tracers:
    """Both tracers for as long as the block runs; nothing at all without arguments for ingero-cuda."""

    def __init__(self, bin_dir, out, cuda=None, sched=True):
        self.commands = []
        if cuda is not None:
            self.commands.append([f"{bin_dir}/ingero-cuda", "-q", "-o", out / "a.cuda.ndjson", *cuda])
            if sched:
                self.commands.append([f"{bin_dir}/ingero-sched", "-q", "-o", out / "a.sched.ndjson"])
        self.out = out

    def __enter__(self):
        self.running = [subprocess.Popen(command) for command in self.commands]
        if self.running:
            time.sleep(1.5)
        return self

    def __exit__(self, *error):
        for tracer in self.running:
            tracer.send_signal(signal.SIGINT)
        for tracer in self.running:
            tracer.wait(timeout=60)
        self.ends = []
        for command in self.commands:
            end = last_object(pathlib.Path(command[3]).read_text(encoding="utf-8"))
            if end.get("op") != "end":
                sys.exit(f"overhead: {' '.join(map(str, command))} did not trace; what it said is above")
            self.ends.append({key: end[key] for key in ("stream", "seen", "written", "lost")})


def run(command):
    return last_object(subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False, timeout=120).stdout)


def launches(args, out):
    """(name, ns a launch: median of its rounds, what the tracer says of its stream)"""
    plans = []
    for kind in ("shared", "static"):
        program = HERE / f"launch-{kind}"
        if program.exists():
            command = [str(program), "50000", "9"]
            plans += [(f"C++, {kind} cudart, untraced", command, None)]
            plans += [(f"C++, {kind} cudart, {tier}", command, ["--probe-mode", tier]) for tier in TIERS]
            plans += [(f"C++, {kind} cudart, untraced again", command, None)]
    plans += [("PyTorch, untraced", python("launches.py"), None), ("PyTorch, session", python("launches.py"), []),
              ("PyTorch, torch.profiler", python("launches.py", "--profile"), None)]
    for name, command, cuda in plans:
        if not re.search(args.only, name):
            continue
        with Tracers(args.bin, out, cuda, sched=False) as tracers:
            took = run(command).get("ns_per_launch", [])
        if took:
            yield {"name": name, "ns": statistics.median(took), "rounds": took, "tracers": tracers.ends}


def pairs(args, out, command):
    """For each pair: the loop's time untraced and traced, ns."""
    for pair in range(args.pairs):
        took = {}
        for traced in (False, True) if pair % 2 == 0 else (True, False):
            with Tracers(args.bin, out, [] if traced else None) as tracers:
                took["traced" if traced else "untraced"] = run(command)["loop_ns"]
            if traced:
                took["tracers"] = tracers.ends
        yield took


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", required=True)
    parser.add_argument("--out", required=True)
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--only", default="", metavar="REGEX", help="the tables' rows whose name matches")
    args = parser.parse_args()
    out = pathlib.Path(args.out)
    out.mkdir(parents=True, exist_ok=True)
    results = {"launches": [], "loops": {}}

    def keep():
        (out / "overhead.json").write_text(json.dumps(results, indent=1) + "\n")

    print("| launch-bound | ns a launch | records lost |\n|---|---|---|")
    for row in launches(args, out):
        results["launches"].append(row)
        lost = ", ".join(str(sum(end["lost"].values())) for end in row["tracers"])
        print(f"| {row['name']} | {row['ns']:.0f} | {lost} |", flush=True)
        keep()
    print("\n| loop | untraced, median | traced / untraced, each pair | median |\n|---|---|---|---|")
    for name, command in LOOPS.items():
        if not re.search(args.only, name):
            continue
        try:
            took = results["loops"][name] = list(pairs(args, out, command))
        except (KeyError, subprocess.TimeoutExpired) as error:
            print(f"overhead: {name}: {error!r}", file=sys.stderr)
            continue
        ratios = [t["traced"] / t["untraced"] for t in took]
        usual = statistics.median(t["untraced"] for t in took) / 1e9
        print(f"| {name} | {usual:.2f} s | {', '.join(f'{r:.3f}' for r in sorted(ratios))} | {statistics.median(ratios):.3f} |", flush=True)
        keep()


if __name__ == "__main__":
    main()
