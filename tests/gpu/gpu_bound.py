#!/usr/bin/env python3
"""Loops in which the GPU has all the work: there is nothing to find in them.

    gpu_bound.py --how eager       matrix products, launched one by one
    gpu_bound.py --how compiled    a chain of elementwise operations through torch.compile (Triton kernels)
    gpu_bound.py --how graph       the matrix products of a step, captured and replayed as one CUDA graph

The last line on stdout is a JSON object with what the script itself measured (measure.py). Needs PyTorch with CUDA.
"""
import argparse

import torch

import measure


def options():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--how", choices=["eager", "compiled", "graph"], default="eager")
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--size", type=int, default=8192)
    parser.add_argument("--cpus", type=int, help="pin this process to the first N CPUs")
    parser.add_argument("--profile", action="store_true", help="also report the GPU's busy time, by torch.profiler")
    parser.add_argument("--device", default="cuda")
    return parser.parse_args()


def steps(how, left, right):
    """One step of the chosen kind, as a function, warm."""
    def products():
        for _ in range(4):
            out = left @ right
        return out

    def elementwise(times=40):
        out = left
        for _ in range(times):
            out = torch.sin(out) * right + out
        return out

    if how == "eager":
        return products
    if how == "compiled":
        return torch.compile(elementwise)
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        products()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        products()
    return graph.replay


def main():
    args = options()
    measure.begin(args)
    dtype = torch.bfloat16 if args.device == "cuda" else torch.float32
    left = torch.randn(args.size, args.size, device=args.device, dtype=dtype)
    step = steps(args.how, left, torch.randn_like(left))
    synchronize = torch.cuda.synchronize if args.device == "cuda" else lambda: None
    for _ in range(5):
        step()
    synchronize()
    with measure.Loop(args.profile) as loop:
        for _ in loop.batches(range(1, args.steps + 1)):
            step()
            synchronize()
    loop.report(how=args.how)


if __name__ == "__main__":
    main()
