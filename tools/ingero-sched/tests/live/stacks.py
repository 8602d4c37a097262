"""Work in planted functions, and what the program's own timers say of each: JSON, by function, in ns.

The main thread works; another one keeps the interpreter busy for a while, a third one sleeps in a place of its own.
"""
import gc
import json
import sys
import threading
import time
import zlib

SPENT = {}


def timed(name, clock, began):
    SPENT[name] = SPENT.get(name, 0) + clock() - began


def spin(ns):
    until = time.thread_time_ns() + ns
    number = 0
    while time.thread_time_ns() < until:
        for i in range(500):
            number += i
    return number


def seventy(ns):
    began = time.thread_time_ns()
    until = began + ns * 7
    number = 0
    while time.thread_time_ns() < until:
        for i in range(500):
            number += i
    timed("seventy", time.thread_time_ns, began)
    return number


def twenty(ns):
    began = time.thread_time_ns()
    until = began + ns * 2
    while time.thread_time_ns() < until:
        sum(range(500))
    timed("twenty", time.thread_time_ns, began)


class Item:
    def ten(self, ns):
        began = time.thread_time_ns()
        until = began + ns
        while time.thread_time_ns() < until:
            [i for i in range(500)]
        timed("ten", time.thread_time_ns, began)


def items(count, ns):
    for _ in range(count):
        seventy(ns)
        twenty(ns)
        Item().ten(ns)
        yield None


def pause():
    began = time.monotonic_ns()
    time.sleep(0.02)
    timed("pause", time.monotonic_ns, began)


def collect(garbage):
    for _ in range(4):
        began, began_wall = time.thread_time_ns(), time.monotonic_ns()
        gc.collect()
        timed("gc", time.thread_time_ns, began)
        timed("gc_wall", time.monotonic_ns, began_wall)
    return garbage


def compress(data):
    began = time.thread_time_ns()
    while time.thread_time_ns() < began + 200_000_000:
        zlib.compress(data)
    timed("compress", time.thread_time_ns, began)


def waits_for_ever():
    threading.Event().wait()


def main():
    print("ready", flush=True)
    sys.stdin.readline()
    threading.Thread(target=waits_for_ever, daemon=True).start()
    for _ in items(20, 7_000_000):
        pause()
    compress(bytes(range(256)) * 1024)
    gc.disable()
    garbage = [{"a": [i]} for i in range(300_000)]
    collect(garbage)
    print(json.dumps(SPENT), flush=True)
    sys.stdin.readline()


main()
