"""The test programs that go into a guest, and what they need there."""
import collections
import glob
import json
import os
import subprocess
import sys

# Commands that the tests call, and those that init.sh and a `--script` do.
COMMANDS = ["bpftool", "cat", "env", "grep", "head", "id", "ip", "kill", "ldd", "ln", "ls", "mkdir", "mkfifo", "mount", "prlimit", "seq", "setpriv",
            "setsid", "sleep", "stty", "tail", "timeout", "umount", "uname", "unshare"]

# Test programs on live probes: (package, target).
LIVE = [("ingero-ebpf", "live"), ("ingero-sched", "live"), ("ingero-tests", "live")]

# Modules of the end-to-end tests that ask something of the kernel. The others run once, on the machine that builds them; so do
# those that judge shares of time (starved, preempted): on an emulated CPU the tracers' own work is a good part of it.
END_TO_END = ["calls", "command", "counts", "ctrl_c", "errors", "every_function", "flood", "late_library", "midst", "off_cpu", "pipes",
              "real_cudart", "seccomp", "stuck", "tiers"]

# Of Cargo.toml: how `make test` builds the tools for its end-to-end tests.
PROFILE = "test-tools"

TOOLS = ["ingero-cuda", "ingero-sched", "ingero-join", "ingero-chain", "ingero-workload"]

# They compile the C programs that tests of their package watch.
COMPILING = {("ingero-ebpf", "live"): "the_target_compiles", ("ingero-sched", "live"): "workload::both_compile"}

# Left out.
LEFT_OUT = [
    # They hold our sums of waiting times against the scheduler's within 2 %. The scheduler reads its clock some thousand
    # instructions before the tracepoint at which we read ours. An emulated CPU takes long for these, and longer where the host
    # takes its thread off the CPU in between: the sums were seen up to 16 % apart, in both directions, with one time stamp
    # counter for both clocks (clocksource tsc, sched_clock stable); more so the busier the host was.
    "switches_and_times", "off_cpu::a_threads_life",
    # Each call is a trap or two: more than ten minutes on an emulated CPU of a busy host. The other test of that module runs.
    "a_million_calls",
]

# What `--quick` takes, by the beginning of `program test`.
QUICK = [
    # Which tier is taken, and the programs of each with all calls and with outermost ones.
    "ingero-tests/live tiers::the_best", "ingero-ebpf/live multi_keeps_arguments", "ingero-ebpf/live tracefs_keeps_arguments", "ingero-tests/live calls::arguments",
    # The tracepoints, what replaces those that an older kernel lacks, and cgroup v2.
    "ingero-sched/live lives::children", "ingero-sched/live resources::a_victim", "ingero-sched/live resources::direct_io",
    "ingero-sched/live resources::what_is_sent", "ingero-sched/live system::a_quota",
    # What a return probe does to a process in a sandbox.
    "ingero-tests/live seccomp::a_target_that_was_sandboxed_before",
]

# tests: [(program's name, path, test)]; tools: paths; files: paths of files and directories.
Built = collections.namedtuple("Built", "tests tools files environment")


def build(cargo, root, debug):
    """Builds what `make test` builds, in the same ways, so that after it there is nothing to do; for `debug` no more than is needed."""
    tests, profile = ["--workspace"], ["--profile", PROFILE]
    if debug:
        tests, profile = [word for package in dict(LIVE) for word in ("--package", package)], []
    tools = [word for tool in TOOLS for word in ("--bin", tool)]
    subprocess.run([cargo, "build", "--quiet", *(tools if debug else ["--workspace", "--bins"]), *profile], cwd=root, check=True)
    found = executables(cargo, root, tests)
    listed = []
    for key in LIVE:
        path = found[key]
        if key in COMPILING:
            subprocess.run([path, "--exact", COMPILING[key], "--quiet"], check=True, stdout=subprocess.DEVNULL)
        names = subprocess.run([path, "--list", "--format", "terse"], check=True, capture_output=True, text=True).stdout
        names = [line[:-len(": test")] for line in names.splitlines() if line.endswith(": test")]
        if key[0] == "ingero-tests":
            names = [name for name in names if name.partition("::")[0] in END_TO_END]
        listed += [("%s/%s" % key, path, name) for name in names]
    # A crate's own tests take the tool that cargo built beside them, the end-to-end ones the optimised tools.
    beside = os.path.dirname(os.path.dirname(listed[0][1]))
    ours = beside if debug else os.path.join(os.path.dirname(beside), PROFILE)
    tools = [os.path.join(directory, tool) for directory in {beside, ours} for tool in TOOLS]
    tools = [path for path in tools if os.path.isfile(path)]
    stub = max(glob.glob(os.path.join(ours, "build", "ingero-workload-*", "out", "stub")), key=os.path.getmtime)
    files = [stub, os.path.join(os.path.dirname(ours), "tmp")] + glob.glob(os.path.join(root, "tests", ".cache", "nvidia-*"))
    return Built(listed, tools, files, {"INGERO_BIN_DIR": ours, "INGERO_STUB_DIR": stub, "INGERO_TEST_DISK": "/disk"})


def executables(cargo, root, how):
    """{(package, target): path} of the integration tests that cargo makes of these packages."""
    done = subprocess.run([cargo, "test", *how, "--no-run", "--message-format", "json-render-diagnostics", "--quiet"],
                          cwd=root, check=True, stdout=subprocess.PIPE, text=True)
    found = {}
    for message in map(json.loads, done.stdout.splitlines()):
        if message["reason"] == "compiler-artifact" and message["executable"] and message["target"]["kind"] == ["test"]:
            package = os.path.basename(os.path.dirname(message["manifest_path"]))
            package = {"ebpf": "ingero-ebpf", "tests": "ingero-tests"}.get(package, package)
            found[package, message["target"]["name"]] = message["executable"]
    return found


def wanted(test, quick, names):
    """Whether a test is among those asked for."""
    name = "%s %s" % (test[0], test[2])
    if any(part in name for part in LEFT_OUT) and not names:
        return False
    return (not quick or any(name.startswith(begin) for begin in QUICK)) and (not names or any(part in name for part in names))


def python(archive):
    """The interpreter that runs this, with the modules that the tests' programs take."""
    asked = "import ctypes, os, signal, sys, threading; print(*{m.__file__ for m in sys.modules.values() if getattr(m, '__file__', None)}, sep='\\n')"
    modules = subprocess.run([sys.executable, "-I", "-c", asked], check=True, capture_output=True, text=True).stdout.split("\n")
    interpreter = os.path.realpath(sys.executable)
    archive.add(interpreter)
    archive.link("/usr/local/bin/python3", interpreter)
    for module in filter(os.path.isfile, modules):
        archive.add(module)
