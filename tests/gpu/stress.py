#!/usr/bin/env python3
"""Burns the first N CPUs, one process on each, until it is ended: a rival for whoever else runs there.

    stress.py 4
"""
import os
import signal
import sys


def burn(cpu):
    os.sched_setaffinity(0, [cpu])
    with open("/proc/self/comm", "w", encoding="ascii") as f:
        f.write("stress")
    while True:
        pass


def main():
    # Blocked before anybody can send one, so that none ends this process and leaves its children behind.
    ends = {signal.SIGTERM, signal.SIGINT}
    signal.pthread_sigmask(signal.SIG_BLOCK, ends)
    children = []
    for cpu in range(int(sys.argv[1])):
        child = os.fork()
        if child == 0:
            burn(cpu)
        children.append(child)
    signal.sigwait(ends)
    for child in children:
        os.kill(child, signal.SIGKILL)


if __name__ == "__main__":
    main()
