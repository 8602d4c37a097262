#!/usr/bin/env python3
"""An in-memory tensor inference loop, fed in different ways, that counts its own time.

    inference.py --feed direct                 index the tensor directly
    inference.py --feed loader --workers 4     torch's DataLoader, per-item indexing and collation

The model is a two-layer MLP, so the GPU has little to do and the feeding decides. The last line on
stdout is a JSON object with what the script itself measured, to be held against what a trace says.
Needs PyTorch with CUDA.
"""
import argparse
import json
import os
import time

import torch
from torch.utils.data import DataLoader, TensorDataset


def options():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--feed", choices=["direct", "loader"], default="direct")
    parser.add_argument("--workers", type=int, default=0)
    parser.add_argument("--rows", type=int, default=2_800_000)
    parser.add_argument("--columns", type=int, default=100)
    parser.add_argument("--batch", type=int, default=262_144)
    parser.add_argument("--passes", type=int, default=1)
    parser.add_argument("--cpus", type=int, help="pin this process and its workers to the first N CPUs")
    return parser.parse_args()


def batches(args, data):
    """The input batches on the CPU, as the chosen way of feeding makes them."""
    if args.feed == "direct":
        return (data[at:at + args.batch] for at in range(0, len(data), args.batch))
    loader = DataLoader(TensorDataset(data), batch_size=args.batch, num_workers=args.workers, pin_memory=args.workers > 0)
    return (item[0] for item in loader)


def main():
    args = options()
    if args.cpus:
        os.sched_setaffinity(0, range(args.cpus))
        torch.set_num_threads(args.cpus)
    torch.manual_seed(1)
    data = torch.rand(args.rows, args.columns)
    model = torch.nn.Sequential(torch.nn.Linear(args.columns, 256), torch.nn.ReLU(), torch.nn.Linear(256, 10)).cuda().eval()
    model(data[:args.batch].cuda()).cpu()  # context, modules, allocator: the cold start
    torch.cuda.synchronize()

    began_ns, waited_ns, count, total = time.monotonic_ns(), 0, 0, 0.0
    with torch.inference_mode():
        for _ in range(args.passes):
            source = iter(batches(args, data))
            while True:
                asked_ns = time.monotonic_ns()
                batch = next(source, None)
                waited_ns += time.monotonic_ns() - asked_ns
                if batch is None:
                    break
                total += model(batch.cuda(non_blocking=True)).sum().item()
                count += 1
    torch.cuda.synchronize()
    ended_ns = time.monotonic_ns()
    with open("/proc/self/schedstat", encoding="ascii") as f:
        on_cpu_ns, run_delay_ns, _ = map(int, f.read().split())
    print(json.dumps({
        "feed": args.feed, "workers": args.workers, "cpus": args.cpus or os.cpu_count(), "pid": os.getpid(), "batches": count,
        "began_mono_ns": began_ns, "loop_ns": ended_ns - began_ns, "waited_for_data_ns": waited_ns,
        "main_thread": {"on_cpu_ns": on_cpu_ns, "run_delay_ns": run_delay_ns}, "sum": total,
    }), flush=True)


if __name__ == "__main__":
    main()
