#!/usr/bin/env python3
"""Launches small kernels through PyTorch as fast as one thread can: as bound by launches as Python gets.

    launches.py [--profile]

The last line on stdout is a JSON object: ns a launch in each round. --profile runs the rounds under torch.profiler.
Needs PyTorch with CUDA.
"""
import argparse
import contextlib
import json
import time

import torch


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--launches", type=int, default=50_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--profile", action="store_true")
    args = parser.parse_args()
    number = torch.zeros(16, device="cuda")
    number.add_(1).sum().item()
    activities = [torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]
    profiler = torch.profiler.profile(activities=activities) if args.profile else contextlib.nullcontext()
    rounds = []
    with profiler, torch.inference_mode():
        for _ in range(args.rounds):
            began_ns = time.monotonic_ns()
            for _ in range(args.launches):
                number.add_(1)
            torch.cuda.synchronize()
            rounds.append((time.monotonic_ns() - began_ns) / args.launches)
    print(json.dumps({"launches": args.launches, "rounds": args.rounds, "ns_per_launch": rounds}), flush=True)


if __name__ == "__main__":
    main()
