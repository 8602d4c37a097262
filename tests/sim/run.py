#!/usr/bin/env python3
"""Random machines with known truth, and what ingero-join | ingero-chain say of them.

    run.py --bin target/release                 40 seeds, a minute
    run.py --bin target/release --seeds 0..500  more
    run.py --bin ... --seeds 17 --keep DIR -v   one, with its inputs and outputs kept
    run.py --self-test --seeds 0..100           besides (then for one seed of four) or alone, the simulator's own invariants,
                                               and reports made from the truth, right and wrong, for the checker

Exit: 0 all right, 1 a report differs from the truth (or an invariant is broken), 2 usage.
"""

import argparse
import collections
import concurrent.futures
import functools
import os
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import check  # noqa: E402
import nothing  # noqa: E402
import perfect  # noqa: E402
import selftest  # noqa: E402
from scenario import KINDS, Scenario  # noqa: E402


def seeds(text):
    low, dots, high = text.partition("..")
    return range(int(low), int(high)) if dots else range(int(low), int(low) + 1)


def keep(where, seed, scenario, joined, chained):
    path = os.path.join(where, str(seed))
    os.makedirs(path, exist_ok=True)
    files = {"cuda.ndjson": scenario.cuda.encode(), "sched.ndjson": scenario.sched.encode(), "scenario": str(scenario).encode() + b"\n",
             "joined.ndjson": joined, "chain.ndjson": chained}
    for name, data in files.items():
        with open(os.path.join(path, name), "wb") as out:
            out.write(data)


def one(args, seed):
    """One seed: (scenario as text, failures)."""
    with tempfile.TemporaryDirectory() as work:
        return judged(args, seed, work)


def judged(args, seed, work):
    scenario = Scenario(seed, args.kind, args.lossy)
    fails = [("simulator", text) for text in selftest.problems(scenario)]
    if args.self_test and (not args.bin or seed % 4 == 0):
        fails += [("checker", text) for text in perfect.problems(scenario)]
    joined = chained = b""
    if args.bin:
        cuda, sched = os.path.join(work, "cuda.ndjson"), os.path.join(work, "sched.ndjson")
        for path, text in ((cuda, scenario.cuda), (sched, scenario.sched)):
            with open(path, "w", encoding="utf-8") as out:
                out.write(text)
        try:
            joined, chained, tool_fails = check.run_tools(args.bin, cuda, sched)
            fails += tool_fails + check.check(scenario, joined, chained, lambda finding: check.explain(args.bin, joined, finding))
        except subprocess.TimeoutExpired as err:
            fails.append(("crash", f"{err.cmd[0]} did not end within {err.timeout} s"))
    if args.keep and (fails or args.verbose):
        keep(args.keep, seed, scenario, joined, chained)
    return str(scenario), fails


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", help="directory of ingero-join and ingero-chain")
    parser.add_argument("--seeds", type=seeds, default=range(40), help="A..B, B excluded, or one seed (default 0..40)")
    parser.add_argument("--kind", choices=sorted(KINDS), help="only this kind of scenario")
    parser.add_argument("--lossy", action="store_true", help="records are lost in every scenario, not in one of eight")
    parser.add_argument("--keep", metavar="DIR", help="write inputs and outputs of failing seeds there (all with -v)")
    parser.add_argument("--self-test", action="store_true", help="check the simulator too, or, without --bin, alone")
    parser.add_argument("-v", "--verbose", action="store_true")
    args = parser.parse_args()
    if not args.bin and not args.self_test:
        parser.error("--bin is missing: where are ingero-join and ingero-chain?")
    kinds, bad = collections.Counter(), 0
    for text in nothing.problems(args.bin) if args.bin and not args.kind and len(args.seeds) > 1 else ():
        bad = 1
        kinds["nothing-seen"] += 1
        print(f"nothing seen: {text}")
    # Each seed stands for itself, so every CPU can have one.
    with concurrent.futures.ProcessPoolExecutor() as pool:
        for seed, (scenario, fails) in zip(args.seeds, pool.map(functools.partial(one, args), args.seeds)):
            if fails:
                bad += 1
                print(f"seed {seed}: {scenario}")
                for kind, text in fails:
                    kinds[kind] += 1
                    print(f"    {kind}: {text}")
            elif args.verbose:
                print(f"seed {seed}: {scenario}: right")
    print(f"{len(args.seeds)} seeds, {bad} wrong {dict(kinds) if kinds else ''}".rstrip())
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
