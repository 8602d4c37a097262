#!/usr/bin/env python3
"""The tests on live probes once more, on other kernels: Debian's cloud kernels under qemu.

    run.py                    all of them on Linux 6.1 and 6.12
    run.py --quick            the few that tell most about a kernel; what .ci/run takes
    run.py 6.12 -t seccomp    one kernel, the tests whose names contain this
    run.py 6.1 --script FILE  a shell script in place of the tests

The test programs are those of `make test`, built on this machine. They run as root in a guest whose whole file system is in
memory: the programs, their libraries, a shell and the commands that the tests call, each at the path that it has here.

Exit: 0 all passed, 1 a test failed, 2 something is missing and nothing was tested (with --optional: 0, in one line).
"""
import argparse
import concurrent.futures
import os
import sys
import tempfile
import threading

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import guest  # noqa: E402
import images  # noqa: E402
import initramfs  # noqa: E402
import outcome  # noqa: E402
import programs  # noqa: E402

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
SERIES = ["6.1", "6.12"]
# A test that takes longer is killed; under TCG everything takes some ten times as long as on the machine itself, and longer
# where others use it too.
LIMIT_S = 600
# Nothing on the serial line for so long: the guest is dead.
SILENCE_S = LIMIT_S + 30
# Somebody has pressed Ctrl-C.
ABORTED = threading.Event()


def say(text):
    print("kernels: %s" % text, file=sys.stderr, flush=True)


def base(built, tests_of, path):
    """The part of the guest's file system that is the same for all kernels."""
    archive = initramfs.Archive(path)
    for directory in ("/proc", "/sys", "/dev", "/run", "/root", "/disk"):
        archive.directory(directory)
    # Before anything below it, and no mount: the programs may have been built there.
    archive.directory("/tmp", 0o1777)
    archive.text("/etc/passwd", "root:x:0:0::/root:/bin/bash\nnobody:x:65534:65534::/:/bin/sh\n")
    for name in programs.COMMANDS:
        archive.add(initramfs.program(name))
    archive.add("/bin/sh")
    archive.add("/bin/bash")
    with open(os.path.join(HERE, "init.sh"), encoding="utf-8") as init:
        archive.text("/init", init.read(), 0o755)
    with tempfile.TemporaryDirectory() as work:
        for program in set(tests_of) | set(built.tools):
            archive.add(program, initramfs.stripped(program, os.path.join(work, "program")))
    for more in built.files:
        archive.tree(more)
    programs.python(archive)
    archive.close()


def own(tests, built, script, path):
    """What this run's guests are to do."""
    archive = initramfs.Archive(path)
    archive.text("/environment", "limit=%d\nexport %s\n" % (LIMIT_S, " ".join("%s=%s" % pair for pair in built.environment.items())))
    archive.text("/tests", "".join("%s\t%s\t%s\n" % test for test in tests))
    if script:
        with open(script, encoding="utf-8") as text:
            archive.text("/script", text.read())
    archive.close()


def boot(kernel, image, disk, work, verbose):
    """Runs one kernel to its end; what came of each test."""
    told = outcome.Outcome(kernel.series, verbose)
    console = os.path.join(work, "console-%s" % kernel.series)
    with guest.Guest(kernel.vmlinuz, image, disk, console) as running:
        for line in running.lines(SILENCE_S):
            told.hear(line)
            if told.done:
                break
        if not told.done and not ABORTED.is_set():
            told.died(running.last_words())
    return told


def tried(kernel, image, disk, work, verbose):
    """The same, and once more where the guest died."""
    told = boot(kernel, image, disk, work, verbose)
    if not told.done and not ABORTED.is_set():
        # Of ours it dies again.
        say("Linux %s: the guest died: once more from the beginning" % kernel.series)
        told = boot(kernel, image, disk, work, verbose)
    return told


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("series", nargs="*", default=SERIES, help="kernels, such as 6.12 (default: %s)" % " ".join(SERIES))
    parser.add_argument("--quick", action="store_true", help="only the tests of the list in programs.py")
    parser.add_argument("--optional", action="store_true", help="exit with 0 where qemu or a kernel is not to be had")
    parser.add_argument("-t", "--test", action="append", default=[], help="only tests whose `program name` contains this")
    parser.add_argument("--script", help="run this shell script in the guest and print what it says")
    parser.add_argument("--debug", action="store_true", help="end-to-end tests and tools without optimisation, which build faster")
    parser.add_argument("-v", "--verbose", action="store_true", help="print everything that the guest says")
    parser.add_argument("--cargo", default=os.environ.get("CARGO", "cargo"))
    return parser.parse_args()


def main():
    args = arguments()
    cache = os.path.join(ROOT, "tests", ".cache", "kernels")
    try:
        guest.check()
        for name in programs.COMMANDS + ["mkfs.ext4", "strip"]:
            initramfs.program(name)
        kernels = [images.kernel(series, cache) for series in args.series]
    except images.NotToBeHad as why:
        say("%s%s" % ("skipped: " if args.optional else "", why))
        return 0 if args.optional else 2
    built = programs.build(args.cargo, ROOT, args.debug)
    tests = [test for test in built.tests if programs.wanted(test, args.quick, args.test)]
    if not tests:
        say("no test of that name")
        return 2
    failed = False
    with tempfile.TemporaryDirectory(prefix="ingero-kernels-") as work:
        parts = [os.path.join(work, name) for name in ("base", "own")]
        base(built, {path for _, path, _ in tests}, parts[0])
        own(tests, built, args.script, parts[1])
        disk = guest.empty_disk(os.path.join(work, "disk"))
        image = guest.concatenated(os.path.join(work, "image"), *parts)
        for kernel in kernels:
            say("Linux %s (Debian's %s), %d tests" % (kernel.release, kernel.version, len(tests)))
        # All at once: a test mostly waits for one of its programs.
        with concurrent.futures.ThreadPoolExecutor(len(kernels)) as pool:
            run_one = lambda kernel: tried(kernel, image, disk, work, args.verbose or bool(args.script))  # noqa: E731
            try:
                for kernel, told in zip(kernels, pool.map(run_one, kernels)):
                    if not args.script:
                        told.require(tests)
                        print(told.summary(kernel), flush=True)
                    failed |= told.failed
            except KeyboardInterrupt:
                ABORTED.set()
                guest.end_all()
                raise
    return 1 if failed else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
