"""A training loop on the stub runtime which waits for one thing in each step, and says how long it waited in all.

    waits.py LIBCUDART KIND

It prints its process id, waits for a line, runs the loop, prints "waited NS other PID", and waits for the end of its input.
"""
import ctypes
import fcntl
import os
import select
import socket
import sys
import tempfile
import threading
import time

STEPS = 40
WAIT_S = 0.02


def name_thread(name):
    """As ps shows it."""
    ctypes.CDLL(None).prctl(15, name.encode(), 0, 0, 0)


def beside(run, orphan=False):
    """Runs it in another process, in the end one that is no descendant; what that prints first."""
    reader, writer = os.pipe()
    if os.fork() == 0:
        if orphan and os.fork() > 0:
            os._exit(0)
        name_thread("other")
        os.write(writer, f"{os.getpid()}\n".encode())
        run()
        os._exit(0)
    if orphan:
        os.wait()
    return int(os.read(reader, 20).split()[0])


def pause():
    return lambda: time.sleep(WAIT_S), 0


def pipe():
    """Somebody reads slowly what the loop writes."""
    reader, writer = os.pipe()

    def read():
        os.close(writer)
        while os.read(reader, 1 << 16):
            time.sleep(WAIT_S)
    other = beside(read)
    os.close(reader)
    os.write(writer, b"x" * (1 << 16))
    return lambda: os.write(writer, b"x" * (1 << 16)), other


def file_lock():
    """Somebody has the lock most of the time."""
    folder = tempfile.mkdtemp()

    def lock():
        file = open(os.path.join(folder, "lock"), "w")
        while True:
            fcntl.flock(file, fcntl.LOCK_EX)
            time.sleep(WAIT_S)
            fcntl.flock(file, fcntl.LOCK_UN)
            time.sleep(0.001)
    other = beside(lock)
    file = open(os.path.join(folder, "lock"), "w")

    def step():
        fcntl.flock(file, fcntl.LOCK_EX)
        fcntl.flock(file, fcntl.LOCK_UN)
        time.sleep(0.0005)
    return step, other


def network():
    """A server that nobody watches answers late."""
    server = socket.create_server(("127.0.0.1", 0))

    def serve():
        connection, _ = server.accept()
        while connection.recv(1):
            time.sleep(WAIT_S)
            connection.send(b"x")
    other = beside(serve, orphan=True)
    connection = socket.create_connection(server.getsockname())
    server.close()

    def step():
        connection.send(b"x")
        connection.recv(1)
    return step, other


def request():
    """It is a server, and idle between the requests."""
    server = socket.create_server(("127.0.0.1", 0))
    address = server.getsockname()

    def ask():
        server.close()
        while True:
            time.sleep(WAIT_S)
            # The next request comes after the answer: a loop that is late finds no queue of them.
            with socket.create_connection(address) as connection:
                connection.recv(1)
    other = beside(ask, orphan=True)
    epoll = select.epoll()
    epoll.register(server)

    def step():
        epoll.poll()
        server.accept()[0].close()
    return step, other


def gil():
    """Another thread computes in Python."""
    def hog():
        name_thread("hog")
        while True:
            sum(range(1000))
    threading.Thread(target=hog, daemon=True).start()

    def step():
        # Whoever lets the lock go, as all calls that may block do, gets it back from the hog only after a while.
        for _ in range(3):
            os.getppid()
            time.sleep(0)
    return step, 0


def main():
    runtime = ctypes.CDLL(sys.argv[1])
    step, other = {f.__name__: f for f in [pause, pipe, file_lock, network, request, gil]}[sys.argv[2]]()
    name_thread("train")
    memory = ctypes.c_void_p()
    runtime.cudaMalloc(ctypes.byref(memory), ctypes.c_size_t(4096))
    # One thread at a time is in a PyDLL call: the loop keeps the GIL in its calls, and gives it away in its wait.
    calls = ctypes.PyDLL(sys.argv[1])
    work = lambda: calls.cudaMemsetAsync(memory, 0, ctypes.c_size_t(4096), None)
    print(os.getpid(), flush=True)
    sys.stdin.readline()
    waited = 0
    for _ in range(STEPS):
        for _ in range(20):
            work()
        calls.cudaDeviceSynchronize()
        begin = time.monotonic_ns()
        step()
        waited += time.monotonic_ns() - begin
    work()
    calls.cudaDeviceSynchronize()
    print("waited", waited, "other", other, flush=True)
    sys.stdin.readline()
    os.killpg(0, 9)


os.setpgid(0, 0)
main()
