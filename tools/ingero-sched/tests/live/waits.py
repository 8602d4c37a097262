"""Waits of the main thread, one kind after the other. Each prints its name and when it began and ended, CLOCK_MONOTONIC ns."""
import fcntl
import mmap
import os
import select
import socket
import subprocess
import sys
import threading
import time

SHORT_S = 0.15
# Names of files and what an epoll set holds are looked up a little later: they stay open.
OPEN = []


def after(what):
    """Does it a little later, in another thread."""
    def run():
        time.sleep(SHORT_S)
        what()
    threading.Thread(target=run).start()


def pause():
    time.sleep(SHORT_S)


def pipe():
    reader, writer = os.pipe()
    after(lambda: os.write(writer, b"x"))
    os.read(reader, 1)


def full_pipe():
    reader, writer = os.pipe()
    after(lambda: os.read(reader, 1 << 20))
    os.write(writer, b"x" * (1 << 17))


def unix():
    ours, theirs = socket.socketpair()
    after(lambda: theirs.send(b"x"))
    ours.recv(1)


def connection():
    server = socket.create_server(("127.0.0.1", 0))
    client = socket.create_connection(server.getsockname())
    ours, _ = server.accept()
    after(lambda: client.send(b"x"))
    ours.recv(1)


def request():
    server = socket.create_server(("127.0.0.1", 0))
    epoll = select.epoll()
    epoll.register(server)
    OPEN.extend([server, epoll])
    after(lambda: socket.create_connection(server.getsockname()))
    epoll.poll(9)


def deadline():
    reader, _ = os.pipe()
    poll = select.poll()
    poll.register(reader)
    poll.poll(SHORT_S * 1000)


def file_lock():
    path = os.path.join(sys.argv[1], "lock")
    hold = "import fcntl, sys, time; f = open(sys.argv[1], 'w'); fcntl.flock(f, fcntl.LOCK_EX); print(flush=True); time.sleep(.3)"
    file = open(path, "w")
    OPEN.append(file)
    with subprocess.Popen([sys.executable, "-c", hold, path], stdout=subprocess.PIPE) as holder:
        holder.stdout.readline()
        begin = time.monotonic_ns()
        fcntl.flock(file, fcntl.LOCK_EX)
        end = time.monotonic_ns()
    return begin, end


def lock():
    lock = threading.Lock()
    lock.acquire()
    after(lock.release)
    lock.acquire()


def child():
    with subprocess.Popen(["sleep", str(SHORT_S)]) as process:
        process.wait()


def device():
    path = os.path.join(sys.argv[1], "data")
    with open(path, "wb") as file:
        file.write(os.urandom(1 << 22) * 8)
        os.fsync(file.fileno())
    # O_DIRECT wants whole pages in aligned memory.
    buffer = mmap.mmap(-1, 1 << 20)
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECT)
    OPEN.append(buffer)
    begin = time.monotonic_ns()
    while os.readv(descriptor, [buffer]):
        pass
    return begin, time.monotonic_ns()


def gil():
    until = time.monotonic() + 1

    def count():
        while time.monotonic() < until:
            sum(range(1000))
    rival = threading.Thread(target=count)
    rival.start()
    count()
    rival.join()


def main():
    print("pid", os.getpid(), flush=True)
    sys.stdin.readline()
    for kind in [pause, pipe, full_pipe, unix, connection, request, deadline, file_lock, lock, child, device, gil]:
        begin = time.monotonic_ns()
        inside = kind()
        begin, end = inside or (begin, time.monotonic_ns())
        print(kind.__name__, begin, end, flush=True)
    print("done", flush=True)
    sys.stdin.readline()


main()
