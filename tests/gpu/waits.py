#!/usr/bin/env python3
"""Loops on a GPU that wait for one thing each, in every step, and count with timers of their own how long.

    waits.py sleep            time.sleep() in the loop
    waits.py gil              another thread of the process computes in Python
    waits.py gil-worker       the loop asks a worker, in which another thread computes in Python, below a CPU limit of half a CPU
    waits.py quota            the process computes below a CPU limit of half a CPU
    waits.py http             a worker fetches from a server on loopback that answers late
    waits.py pipe             the loop writes into a pipe that is read slowly
    waits.py file-lock        another process has the lock of a file most of the time
    waits.py direct           reads with O_DIRECT
    waits.py fsync            writes a checkpoint and syncs it
    waits.py faults           a child was just forked: each page that is written to is copied
    waits.py server           a server that sleeps until somebody asks, in one step of 20 ms
    waits.py polling-server   a server that asks over and over whether somebody asks

Each loop takes about --seconds. The last line on stdout is a JSON object with what the script itself measured (measure.py):
`spent_ns`.`wait` is its timer around the wait, `other_pid` the process on the other side, `throttled_ns` what the cgroup counted.
The limits need root; their empty cgroups stay. Needs PyTorch with CUDA.
"""
import argparse
import ctypes
import fcntl
import http.client
import http.server
import mmap
import os
import pathlib
import select
import socket
import tempfile
import threading
import time

import torch

import measure

WAIT_S = 0.02
MB = 1 << 20
GROUPS = pathlib.Path("/sys/fs/cgroup")


def name_thread(name):
    """As ps shows it."""
    ctypes.CDLL(None).prctl(15, name.encode(), 0, 0, 0)


def beside(run, name="other", orphan=False):
    """Runs it in another process, in the end one that is no descendant; its number."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        if orphan and os.fork() > 0:
            os._exit(0)
        name_thread(name)
        os.write(writer, f"{os.getpid()}\n".encode())
        try:
            run()
        finally:
            os._exit(0)
    if orphan:
        os.waitpid(child, 0)
    return int(os.read(reader, 20).split()[0])


class Limit:
    """A cgroup with half a CPU, of either version."""

    def __init__(self):
        self.is_v2 = (GROUPS / "cgroup.controllers").exists()
        self.path = (GROUPS if self.is_v2 else GROUPS / "cpu") / f"ingero-waits-{os.getpid()}"
        if self.is_v2:
            (GROUPS / "cgroup.subtree_control").write_text("+cpu", encoding="ascii")
        self.path.mkdir()
        for name, value in (("cpu.max", "50000 100000"),) if self.is_v2 else (("cpu.cfs_period_us", "100000"), ("cpu.cfs_quota_us", "50000")):
            (self.path / name).write_text(value, encoding="ascii")

    def take(self, pid):
        (self.path / "cgroup.procs").write_text(str(pid), encoding="ascii")

    def throttled_ns(self):
        stat = dict(line.split() for line in (self.path / "cpu.stat").read_text(encoding="ascii").splitlines())
        return 1000 * int(stat["throttled_usec"]) if self.is_v2 else int(stat["throttled_time"])


def spin(seconds):
    until = time.thread_time() + seconds
    while time.thread_time() < until:
        pass


# ---- the waits: each returns (what to do in a step, the process on the other side, a limit)

def pause():
    return lambda: time.sleep(WAIT_S), 0, None


def gil():
    def hog():
        name_thread("hog")
        while True:
            sum(range(1000))
    threading.Thread(target=hog, daemon=True).start()

    def step():
        for _ in range(4):
            time.sleep(0)  # lets the lock go; the hog keeps it for 5 ms
    return step, 0, None


def asked(work, name, orphan=False):
    """A process that does `work` each time it is asked: (ask and wait for it, its number)."""
    here, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)

    def serve():
        here.close()
        while there.recv(1):
            work()
            there.send(b"x")

    def ask():
        here.send(b"x")
        here.recv(1)
    other = beside(serve, name, orphan)
    there.close()
    return ask, other


def gil_worker():
    def work():
        if threading.active_count() == 1:
            def hog():
                name_thread("hog")
                while True:
                    sum(range(1000))
            threading.Thread(target=hog, daemon=True).start()
        for _ in range(4):
            time.sleep(0)
    ask, other = asked(work, "worker")
    limit = Limit()
    limit.take(other)
    return ask, other, limit


def quota():
    limit = Limit()
    limit.take(os.getpid())
    return lambda: spin(WAIT_S), 0, limit


class Late(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        time.sleep(WAIT_S)
        self.send_response(200)
        self.send_header("Content-Length", "4")
        self.end_headers()
        self.wfile.write(b"data")

    def log_message(self, *_):
        pass


def http_worker():
    server = http.server.HTTPServer(("127.0.0.1", 0), Late)
    other = beside(server.serve_forever, "server", orphan=True)
    port = server.server_address[1]
    server.server_close()
    connection = []

    def fetch():
        if not connection:
            connection.append(http.client.HTTPConnection("127.0.0.1", port))
        connection[0].request("GET", "/")
        connection[0].getresponse().read()
    ask, _ = asked(fetch, "worker")
    return ask, other, None


def pipe():
    reader, writer = os.pipe()

    def read():
        os.close(writer)
        while os.read(reader, 1 << 16):
            time.sleep(WAIT_S)
    other = beside(read, "reader")
    os.close(reader)
    os.write(writer, b"x" * (1 << 16))
    return lambda: os.write(writer, b"x" * (1 << 16)), other, None


def file_lock():
    path = os.path.join(tempfile.mkdtemp(), "lock")

    def hold():
        file = open(path, "w", encoding="ascii")
        while True:
            fcntl.flock(file, fcntl.LOCK_EX)
            time.sleep(WAIT_S)
            fcntl.flock(file, fcntl.LOCK_UN)
            time.sleep(0.001)
    other = beside(hold, "holder")
    file = open(path, "w", encoding="ascii")

    def step():
        fcntl.flock(file, fcntl.LOCK_EX)
        fcntl.flock(file, fcntl.LOCK_UN)
    return step, other, None


def direct():
    path = os.path.join(tempfile.mkdtemp(dir="/var/tmp"), "data")
    with open(path, "wb") as file:
        for _ in range(256):
            file.write(os.urandom(MB))
        os.fsync(file.fileno())
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECT)
    os.unlink(path)
    buffer, at = mmap.mmap(-1, 16 * MB), [0]

    def step():
        os.preadv(descriptor, [buffer], at[0] * 16 * MB)
        at[0] = (at[0] + 1) % 16
    return step, 0, None


def fsync():
    file = open(os.path.join(tempfile.mkdtemp(dir="/var/tmp"), "checkpoint"), "wb", buffering=0)
    block = os.urandom(8 * MB)

    def step():
        file.seek(0)
        file.write(block)
        os.fsync(file.fileno())
    return step, 0, None


def faults():
    memory = mmap.mmap(-1, 64 * MB, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)

    def touch():
        for at in range(0, len(memory), mmap.PAGESIZE):
            memory[at] = 1

    def step():
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:
            os.read(reader, 1)
            os._exit(0)
        touch()
        os.write(writer, b"x")
        os.waitpid(child, 0)
        os.close(reader)
        os.close(writer)
    touch()
    return step, 0, None


def asked_from_outside(listen):
    """Somebody who is no relative connects every 20 ms."""
    server = socket.create_server(("127.0.0.1", 0), backlog=64)
    address = server.getsockname()

    def ask():
        server.close()
        while True:
            time.sleep(WAIT_S)
            try:
                # The next request comes after the answer: a loop that is late finds no queue of them.
                with socket.create_connection(address) as connection:
                    connection.recv(1)
            except OSError:
                return
    other = beside(ask, "client", orphan=True)
    return listen(server), other, None


def server():
    def listen(sock):
        epoll = select.epoll()
        epoll.register(sock)

        def step():
            epoll.poll()
            sock.accept()[0].close()
        return step
    return asked_from_outside(listen)


def polling_server():
    def listen(sock):
        sock.setblocking(False)

        def step():
            while True:
                try:
                    return sock.accept()[0].close()
                except BlockingIOError:
                    os.sched_yield()
        return step
    return asked_from_outside(listen)


WAITS = {"sleep": pause, "gil": gil, "gil-worker": gil_worker, "quota": quota, "http": http_worker, "pipe": pipe, "file-lock": file_lock,
         "direct": direct, "fsync": fsync, "faults": faults, "server": server, "polling-server": polling_server}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("wait", choices=sorted(WAITS))
    parser.add_argument("--seconds", type=float, default=4.0)
    args = parser.parse_args()
    # What runs beside is forked before CUDA is there.
    step, other, limit = WAITS[args.wait]()
    left = torch.randn(2048, 2048, device="cuda")
    for _ in range(20):
        (left @ left).sum().item()
    throttled_ns = limit.throttled_ns() if limit else 0
    with measure.Loop() as loop:
        until = time.perf_counter() + args.seconds
        while time.perf_counter() < until:
            loop.count += 1
            with loop.timed("gpu"):
                (left @ left).sum().item()
            with loop.timed("wait"):
                step()
    more = {"throttled_ns": limit.throttled_ns() - throttled_ns} if limit else {}
    loop.report(reason=args.wait, spent_ns=loop.spent, own_ns=loop.spent["wait"], other_pid=other, **more)
    os.killpg(0, 9)


if __name__ == "__main__":
    os.setpgid(0, 0)
    main()
