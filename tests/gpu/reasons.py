#!/usr/bin/env python3
"""Loops on a GPU that lose time for one reason each, or for none, and count with timers of their own how much.

    reasons.py data           workers that take longer for a batch than the GPU does: the loop waits for its data
    reasons.py decode         decoding: 24 small layers, an .item() and 0.3 ms of the host's own work in each step
    reasons.py launches       training of a small network, an .item() each 50 steps: bound by its launches
    reasons.py checkpoint     training that copies its state to pageable memory and writes it to /tmp each so many steps
    reasons.py empty-cache    a loop that empties the allocator's cache in each step
    reasons.py graph          a CUDA graph, replayed back to back: the GPU is busy
    reasons.py copies         copies of 64 MB from pageable memory and nothing else: the GPU copies all the time

Each loop takes about --seconds. The last line on stdout is a JSON object with what the script itself measured (measure.py):
`spent_ns` is what its timers around each part add up to, `own_ns` the part of it in which the GPU had nothing to do by the
loop's construction. With --profile also what torch.profiler saw the GPU do. Needs PyTorch with CUDA.
"""
import argparse
import os
import tempfile
import time

import torch
from torch.utils.data import DataLoader, Dataset

import measure

MB = 1 << 20


def options():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("reason", choices=sorted(LOOPS))
    parser.add_argument("--seconds", type=float, default=6.0)
    parser.add_argument("--cpus", type=int, help="pin this process and its workers to the first N CPUs")
    parser.add_argument("--profile", action="store_true", help="also report the GPU's busy time, by torch.profiler")
    parser.add_argument("--device", default="cuda")
    return parser.parse_args()


def spin(seconds):
    """The host's own work, on its CPU."""
    until = time.perf_counter() + seconds
    while time.perf_counter() < until:
        pass


def steps(seconds):
    """0, 1, 2… for so long."""
    until, i = time.perf_counter() + seconds, 0
    while time.perf_counter() < until:
        yield i
        i += 1


class Slow(Dataset):
    """Items that each take a worker 4 ms of its CPU time."""

    def __init__(self, count):
        self.count = count

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        spin(0.004)
        return torch.full((1024,), float(index % 7))


def layers(count, width, device, dtype):
    """A chain of small layers."""
    many = [torch.nn.Sequential(torch.nn.Linear(width, width), torch.nn.LayerNorm(width), torch.nn.GELU()) for _ in range(count)]
    return torch.nn.Sequential(*many).to(device=device, dtype=dtype)


def trainer(width, depth, device, batch=64):
    """(network, a function that makes one training step and returns the loss, still on the GPU)."""
    model = layers(depth, width, device, torch.float32)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4, momentum=0.9)
    inputs = torch.randn(batch, width, device=device)

    def step():
        optimizer.zero_grad(set_to_none=True)
        loss = model(inputs).square().mean()
        loss.backward()
        optimizer.step()
        return loss

    for _ in range(10):
        step().item()  # context, modules, allocator: the start-up
    return model, step


# ---- the loops: each gets its options, warms up, and runs inside the measured loop

def data(args):
    model = layers(4, 1024, args.device, torch.float32)
    for _ in range(5):
        model(torch.randn(16, 1024, device=args.device)).sum().item()
    # Two workers and 16 items of 4 ms: a batch each 32 ms, of which the GPU needs less than one.
    source = DataLoader(Slow(round(args.seconds / 0.032) * 16), batch_size=16, num_workers=2, pin_memory=args.device == "cuda")
    with torch.inference_mode(), measure.Loop(args.profile) as loop:
        for batch in loop.batches(source):
            with loop.timed("step"):
                model(batch.to(args.device, non_blocking=True)).sum().item()
    return loop, loop.waited_ns


def decode(args):
    dtype = torch.float16 if args.device == "cuda" else torch.float32
    model, token = layers(24, 1024, args.device, dtype), torch.randn(1, 1024, device=args.device, dtype=dtype)
    with torch.inference_mode():
        for _ in range(10):
            model(token).sum().item()
        with measure.Loop(args.profile) as loop:
            for _ in steps(args.seconds):
                loop.count += 1
                with loop.timed("enqueue"):
                    out = model(token).sum()
                with loop.timed("item"):
                    out.item()
                with loop.timed("host"):
                    spin(0.0003)
    return loop, loop.spent["host"]


def launches(args):
    _, step = trainer(256, 12, args.device)
    with measure.Loop(args.profile) as loop:
        for i in steps(args.seconds):
            loop.count += 1
            with loop.timed("step"):
                loss = step()
            if i % 50 == 49:
                with loop.timed("item"):
                    loss.item()
    return loop, 0


def checkpoint(args):
    model, step = trainer(2048, 16, args.device, batch=512)
    with measure.Loop(args.profile) as loop, tempfile.TemporaryDirectory(dir="/tmp") as folder:
        for i in steps(args.seconds):
            loop.count += 1
            with loop.timed("step"):
                step().item()
            if i % 40 == 39:
                with loop.timed("copy"):
                    state = {name: value.cpu() for name, value in model.state_dict().items()}
                with loop.timed("write"):
                    torch.save(state, os.path.join(folder, "state.pt"))
    # While it copies the GPU works, at a host's speed; while it writes the GPU has nothing to do.
    return loop, loop.spent.get("write", 0)


def empty_cache(args):
    _, step = trainer(1024, 8, args.device)
    empty = torch.cuda.empty_cache if args.device == "cuda" else lambda: None
    with measure.Loop(args.profile) as loop:
        for _ in steps(args.seconds):
            loop.count += 1
            with loop.timed("step"):
                step().item()
            with loop.timed("empty_cache"):
                empty()
    # The allocations that follow are inside the next step, some of them before its first kernel.
    return loop, loop.spent["empty_cache"]


def graph(args):
    left = torch.randn(4096, 4096, device=args.device)
    if args.device != "cuda":
        def replay():
            left @ left

        def synchronize():
            pass
    else:
        torch.cuda.synchronize()
        side = torch.cuda.Stream()
        with torch.cuda.stream(side):
            left @ left
        captured = torch.cuda.CUDAGraph()
        with torch.cuda.graph(captured):
            for _ in range(4):
                left @ left
        replay, synchronize = captured.replay, torch.cuda.synchronize
        replay()
        synchronize()
    with measure.Loop(args.profile) as loop:
        for _ in steps(args.seconds):
            loop.count += 1
            with loop.timed("enqueue"):
                for _ in range(20):
                    replay()
            with loop.timed("wait"):
                synchronize()
    return loop, 0


def copies(args):
    source, target = torch.ones(64 * MB // 4), torch.empty(64 * MB // 4, device=args.device)
    for _ in range(3):
        target.copy_(source)
    if args.device == "cuda":
        torch.cuda.synchronize()
    with measure.Loop(args.profile) as loop:
        for _ in steps(args.seconds):
            loop.count += 1
            with loop.timed("copy"):
                target.copy_(source)
    return loop, 0


LOOPS = {"data": data, "decode": decode, "launches": launches, "checkpoint": checkpoint, "empty-cache": empty_cache, "graph": graph, "copies": copies}


def main():
    args = options()
    measure.begin(args)
    loop, own_ns = LOOPS[args.reason](args)
    loop.report(reason=args.reason, spent_ns=loop.spent, own_ns=own_ns)


if __name__ == "__main__":
    main()
