#!/usr/bin/env python3
"""Pushes each entry of ingero-chain's table of thresholds (src/limits.rs), one at a time, and requires that something notices.

  mutate.py [ENTRY...]          all entries, or some; long: each push is a build and a test run
  mutate.py --check             only that each entry names a test that there is

A value is halved and doubled; one of the definitions is also switched off: 0, and far beyond anything. What must turn red is the test
that the entry names, or else any other unit or integration test, a case, or the comparison with the references. All of it runs
on a copy of the working tree in target/mutate, so that nothing is left behind in the tree itself. Exit 1 where a push changed
nothing, or where an entry's own test noticed none of its pushes.
"""
import argparse
import json
import os
import re
import shutil
import subprocess
import sys

ROOT = subprocess.run(["git", "rev-parse", "--show-toplevel"], cwd=os.path.dirname(os.path.abspath(__file__)),
                      check=True, capture_output=True, text=True).stdout.strip()
TABLE = "tools/ingero-chain/src/limits.rs"
ENTRY = re.compile(r"((?:^///[^\n]*\n)+)^pub\(crate\) const ([A-Z_0-9]+): (u32|u64|usize|f64) = ([^;]+);$", re.M)
FAR = {"u32": 1 << 30, "u64": 1 << 60, "usize": 1 << 40, "f64": 1e9}
# A mutant may wait for ever.
LIMIT_S = 900


class Entry:
    def __init__(self, doc, name, kind, value, is_bound):
        self.name, self.kind, self.text, self.is_bound = name, kind, value, is_bound
        test = re.search(r"Test: `(\w+)`", doc)
        self.test = test.group(1) if test else None
        plain = value.replace("_", "")
        self.value = float(plain) if kind == "f64" else eval(plain, {})  # `1 << 62` as well

    def pushes(self):
        half = self.value / 2 if self.kind == "f64" else self.value // 2
        yield "halved", half
        yield "doubled", self.value * 2
        if not self.is_bound:
            yield "off", 0.0 if self.kind == "f64" else 0
            yield "far", FAR[self.kind]


def entries(text):
    bounds = text.index("// Bounds.")
    return [Entry(*match.groups(), match.start() > bounds) for match in ENTRY.finditer(text)]


def literal(kind, value):
    return repr(float(value)) if kind == "f64" else str(value)


class Copy:
    """The working tree as it is, with a build folder of its own."""

    def __init__(self, folder):
        self.tree, self.target = os.path.join(folder, "tree"), os.path.join(folder, "target")
        files = subprocess.run(["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"], cwd=ROOT, check=True,
                               capture_output=True, text=True).stdout.split("\0")
        shutil.rmtree(self.tree, ignore_errors=True)
        for name in filter(None, files):
            source = os.path.join(ROOT, name)
            if os.path.isfile(source):
                os.makedirs(os.path.dirname(os.path.join(self.tree, name)), exist_ok=True)
                shutil.copy2(source, os.path.join(self.tree, name))
        self.env = dict(os.environ, CARGO_TARGET_DIR=self.target, RUST_BACKTRACE="0", PROPTEST_CASES="12")

    def write(self, text):
        with open(os.path.join(self.tree, TABLE), "w") as file:
            file.write(text)

    def build(self, which):
        """A test program: `lib` has the unit tests, `it` those of the whole tool. None where it does not compile."""
        target = ["--lib"] if which == "lib" else ["--test", which]
        done = subprocess.run(["cargo", "test", "-q", "-p", "ingero-chain", *target, "--no-run", "--message-format=json"],
                              cwd=self.tree, env=self.env, capture_output=True, text=True)
        if done.returncode != 0:
            return None
        messages = (json.loads(line) for line in done.stdout.splitlines() if line.startswith("{"))
        return [message["executable"] for message in messages if message.get("executable") and message["profile"]["test"]][-1]

    def build_join(self):
        subprocess.run(["cargo", "build", "-q", "-p", "ingero-join"], cwd=self.tree, env=self.env, check=True)

    def run(self, program, *args):
        """Names of the tests that failed."""
        try:
            done = subprocess.run([program, *args], cwd=os.path.join(self.tree, "tools/ingero-chain"), env=self.env,
                                  capture_output=True, text=True, timeout=LIMIT_S)
        except subprocess.TimeoutExpired:
            return ["(takes for ever)"]
        failed = re.findall(r"^test (\S+) ... FAILED$", done.stdout, re.M)
        return failed or (["(crash)"] if done.returncode != 0 else [])

    def cases(self):
        debug = os.path.join(self.target, "debug")
        done = subprocess.run([sys.executable, os.path.join(self.tree, "tests/cases/check.py"), debug], env=self.env,
                              capture_output=True, text=True, timeout=LIMIT_S)
        return [f"case {name}" for name in re.findall(r"^FAIL +(\S+)", done.stdout, re.M)] or (["cases"] if done.returncode else [])

    def tests(self, program):
        """Names of its tests, without those of their modules."""
        listed = subprocess.run([program, "--list"], env=self.env, capture_output=True, text=True).stdout
        return {name.rsplit("::", 1)[-1] for name in re.findall(r"^(\S+): test$", listed, re.M)}

    def noticed(self, test=None, where=None):
        """Who notices what the copy is like now: the entry's own test first, which is in test program `where`."""
        def look(which, *args):
            program = self.build(which)
            return self.run(program, *args) if program else ["(does not compile)"]
        steps = [lambda: look(where, test)] if where else []
        steps += [lambda: look("lib", "--skip", "reference::"), lambda: look("it"), self.cases, lambda: look("lib", "reference::")]
        return next(filter(None, (step() for step in steps)), [])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("entries", nargs="*", metavar="ENTRY")
    parser.add_argument("--check", action="store_true", help="only that each entry names a test that there is")
    parser.add_argument("--folder", default=os.path.join(ROOT, "target/mutate"), help="where the copy is (target/mutate)")
    args = parser.parse_args()
    with open(os.path.join(ROOT, TABLE)) as file:
        table = file.read()
    chosen = [entry for entry in entries(table) if not args.entries or entry.name in args.entries]
    copy = Copy(args.folder)
    programs = {which: copy.build(which) for which in ("lib", "it")}
    if None in programs.values():
        sys.exit("the tests do not compile")
    where = {test: which for which, program in programs.items() for test in copy.tests(program)}
    missing = [f"{entry.name}: {entry.test or 'no test is named'}" for entry in chosen if entry.test not in where]
    for line in missing:
        print(f"no such test    {line}", flush=True)
    if args.check:
        return 1 if missing else 0
    copy.build_join()
    red = copy.noticed()
    if red:
        sys.exit(f"red without any push: {', '.join(red)}")
    unnoticed, alone = [], []
    pushed = 0
    for entry in chosen:
        own = False
        for how, value in entry.pushes():
            if value == entry.value:
                continue
            old = f"const {entry.name}: {entry.kind} = {entry.text};"
            copy.write(table.replace(old, f"const {entry.name}: {entry.kind} = {literal(entry.kind, value)};"))
            by = copy.noticed(entry.test, where.get(entry.test))
            pushed += 1
            own |= any(name.rsplit("::", 1)[-1] == entry.test for name in by)
            if not by:
                unnoticed.append(f"{entry.name} {how}")
            print(f"{entry.name:24} {how:8} {literal(entry.kind, value):>22}  {', '.join(by[:2]) or 'NOT NOTICED'}", flush=True)
        if not own:
            alone.append(entry.name)
    copy.write(table)
    print(f"{pushed - len(unnoticed)} of {pushed} pushes of {len(chosen)} entries noticed")
    for what, names in [("not noticed", unnoticed), ("not noticed by its own test", alone)]:
        if names:
            print(f"{what}: {', '.join(names)}")
    return 1 if unnoticed or alone or missing else 0


if __name__ == "__main__":
    sys.exit(main())
