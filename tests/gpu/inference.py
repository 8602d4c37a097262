#!/usr/bin/env python3
"""An in-memory tensor inference loop, fed in different ways, that counts its own time.

    inference.py --feed direct                 index the tensor directly
    inference.py --feed loader --workers 4     torch's DataLoader, per-item indexing and collation

The model is a two-layer MLP, so the GPU has little to do and the feeding decides. The last line on
stdout is a JSON object with what the script itself measured (measure.py). Needs PyTorch with CUDA.
"""
import argparse

import torch
from torch.utils.data import DataLoader, TensorDataset

import measure


def options():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--feed", choices=["direct", "loader"], default="direct")
    parser.add_argument("--workers", type=int, default=0)
    parser.add_argument("--rows", type=int, default=7_000_000)
    parser.add_argument("--columns", type=int, default=100)
    parser.add_argument("--batch", type=int, default=1_048_576)
    parser.add_argument("--passes", type=int, default=1)
    parser.add_argument("--cpus", type=int, help="pin this process and its workers to the first N CPUs")
    parser.add_argument("--profile", action="store_true", help="also report the GPU's busy time, by torch.profiler")
    parser.add_argument("--device", default="cuda")
    return parser.parse_args()


def source(args, data):
    """The input batches on the CPU, as the chosen way of feeding makes them."""
    if args.feed == "direct":
        return (data[at:at + args.batch] for at in range(0, len(data), args.batch))
    pinned = args.workers > 0 and args.device == "cuda"
    loader = DataLoader(TensorDataset(data), batch_size=args.batch, num_workers=args.workers, pin_memory=pinned)
    return loader


def main():
    args = options()
    measure.begin(args)
    data = torch.rand(args.rows, args.columns)
    layers = torch.nn.Linear(args.columns, 256), torch.nn.ReLU(), torch.nn.Linear(256, 10)
    model = torch.nn.Sequential(*layers).to(args.device).eval()
    model(data[:args.batch].to(args.device)).sum().item()  # context, modules, allocator: the cold start

    total = 0.0
    with torch.inference_mode(), measure.Loop(args.profile) as loop:
        for _ in range(args.passes):
            for batch in loop.batches(source(args, data)):
                batch = batch if args.feed == "direct" else batch[0]
                total += model(batch.to(args.device, non_blocking=True)).sum().item()
    loop.report(feed=args.feed, sum=total)


if __name__ == "__main__":
    main()
