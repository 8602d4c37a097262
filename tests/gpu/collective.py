#!/usr/bin/env python3
"""All-reduces over two GPUs, and, when asked, one that a rank never joins: a deadlocked collective.

    collective.py                   200 all-reduces of 64 MiB on each of two GPUs
    collective.py --hang 15         then rank 1 stays away for 15 seconds while rank 0 waits in the collective

Needs PyTorch with NCCL and two GPUs. Each rank's last line on stdout is a JSON object.
"""
import argparse
import json
import os
import time

import torch
import torch.distributed as distributed
import torch.multiprocessing as multiprocessing


def rank_main(rank, args):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="29511")
    torch.cuda.set_device(rank)
    distributed.init_process_group("nccl", rank=rank, world_size=2)
    data = torch.ones(args.bytes // 4, device="cuda")
    distributed.all_reduce(data)
    torch.cuda.synchronize()
    began_ns = time.monotonic_ns()
    for _ in range(args.times):
        distributed.all_reduce(data)
        torch.cuda.synchronize()
    ended_ns = time.monotonic_ns()
    hung_ns = 0
    if args.hang:
        if rank == 1:
            time.sleep(args.hang)
        asked_ns = time.monotonic_ns()
        distributed.all_reduce(data)
        torch.cuda.synchronize()
        hung_ns = time.monotonic_ns() - asked_ns
    print(json.dumps({"rank": rank, "pid": os.getpid(), "times": args.times, "loop_ns": ended_ns - began_ns,
                      "hung_ns": hung_ns}), flush=True)
    distributed.destroy_process_group()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--times", type=int, default=200)
    parser.add_argument("--bytes", type=int, default=64 << 20)
    parser.add_argument("--hang", type=float, default=0)
    multiprocessing.spawn(rank_main, args=(parser.parse_args(),), nprocs=2)


if __name__ == "__main__":
    main()
