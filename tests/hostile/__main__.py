"""Try a great number of cases, in blocks that a later call goes on after; report as a table.

A worker process goes through the blocks and leaves one file for each. When it crashes or hangs,
the case is written down, and another worker goes on without it.
"""

import argparse
import collections
import json
import mmap
import random
import struct
import subprocess
import sys
import time
from pathlib import Path

BLOCK = 10_000
#: Seconds after which a case counts as hanging.
PATIENCE = 300


def schedule(shares):
    """Return the family of each case of a block, in an order that mixes them."""
    counts = {name: share * BLOCK // sum(shares.values()) for name, share in shares.items()}
    families = [name for name, count in counts.items() for _ in range(count)]
    random.Random(0).shuffle(families)
    return families


def run_block(number, families, skipped, mark):
    """Return what the cases of a block gave."""
    from .families import FAMILIES
    from .law import Violation

    report = {name: {"outcomes": {}, "slowest": [0.0, None]} for name in FAMILIES}
    violations = []
    for case, name in enumerate(families, start=number * BLOCK):
        if case in skipped:
            continue
        struct.pack_into("<q", mark, 0, case)
        start = time.perf_counter()
        try:
            outcome = FAMILIES[name](random.Random(case))
        except Violation as violation:
            outcome = "violation"
            violations.append([name, case, str(violation)[:500]])
        seconds = time.perf_counter() - start
        found = report[name]
        found["outcomes"][outcome] = found["outcomes"].get(outcome, 0) + 1
        found["slowest"] = max(found["slowest"], [seconds, case], key=lambda pair: pair[0])
    return {"families": report, "violations": violations}


def work(folder, blocks, only=None):
    """Go through the blocks that have no file yet."""
    import torch

    from .families import SHARES, prepare
    from .law import strict_warnings

    torch.set_num_threads(1)
    strict_warnings()
    if not only:
        prepare()
    families = schedule({name: SHARES[name] for name in only or SHARES})
    skipped = {json.loads(path.read_text())["case"] for path in folder.glob("lost-*.json")}
    with open(folder / f"mark-{blocks[0]}", "r+b") as file, mmap.mmap(file.fileno(), 8) as mark:
        for number in blocks:
            path = block_path(folder, number)
            if not path.exists():
                start = time.process_time()
                report = run_block(number, families, skipped, mark)
                report["seconds"] = time.process_time() - start
                path.with_suffix(".tmp").write_text(json.dumps(report))
                path.with_suffix(".tmp").replace(path)


def block_path(folder, number):
    """Return where the report of a block is."""
    return folder / f"block-{number:05d}.json"


def watch(folder, blocks, only):
    """Start workers until every block is done; write down the cases that end or stop them."""
    mark = folder / f"mark-{blocks[0]}"
    while not all(block_path(folder, number).exists() for number in blocks):
        mark.write_bytes(struct.pack("<q", -1))
        command = [sys.executable, "-X", "faulthandler", "-m", "hostile", "--worker"]
        command += ["--folder", folder, "--first", str(blocks[0] * BLOCK)]
        command += ["--cases", str(len(blocks) * BLOCK)]
        worker = subprocess.Popen([*command, "--only", *only] if only else command)
        last, since = None, time.monotonic()
        while worker.poll() is None:
            time.sleep(0.2)
            if mark.read_bytes() != last:
                last, since = mark.read_bytes(), time.monotonic()
            elif time.monotonic() - since > PATIENCE:
                worker.kill()
        (case,) = struct.unpack("<q", mark.read_bytes())
        if worker.returncode:
            if case < 0:
                sys.exit("the worker did not start")
            lost = {"case": case, "returncode": worker.returncode}
            (folder / f"lost-{case}.json").write_text(json.dumps(lost))


def summary(folder):
    """Return the table of all blocks of a folder, and the violations."""
    outcomes = collections.defaultdict(collections.Counter)
    slowest, violations, seconds = {}, [], 0.0
    for path in sorted(folder.glob("block-*.json")):
        report = json.loads(path.read_text())
        seconds += report["seconds"]
        violations += report["violations"]
        for name, found in report["families"].items():
            outcomes[name].update(found["outcomes"])
            slowest[name] = max(slowest.get(name, 0.0), found["slowest"][0])
    lines = ["| family | cases | right | refused by name | broke the law | slowest |"]
    lines.append("|---|---|---|---|---|---|")
    outcomes = {name: counts for name, counts in outcomes.items() if counts}
    for name, counts in outcomes.items():
        right = sum(counts[key] for key in RIGHT)
        refused = {k: n for k, n in counts.items() if k not in (*RIGHT, "none", "violation")}
        told = ", ".join(f"{n:,} {k}" for k, n in sorted(refused.items(), key=lambda kv: -kv[1]))
        lines.append(
            f"| {name} | {counts.total():,} | {right:,} | {told} | {counts['violation']} "
            f"| {slowest[name]:.2g} s |"
        )
    lines.append(f"{sum(c.total() for c in outcomes.values()):,} cases, {seconds:.0f} s.")
    return "\n".join(lines), violations


#: Outcomes that are results: of calls, of fits, of files.
RIGHT = ("right", "fit", "used")


def main():
    """Try the cases; exit with 1 if one broke the law."""
    parser = argparse.ArgumentParser(prog="python -m hostile", description=__doc__)
    parser.add_argument("--cases", type=int, default=1_000_000)
    parser.add_argument("--first", type=int, default=0, help="the number of the first case")
    parser.add_argument("--folder", type=Path, required=True, help="where the blocks are kept")
    parser.add_argument("--only", nargs="+", metavar="FAMILY", help="families to try")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    first = arguments.first // BLOCK
    blocks = range(first, first - (-arguments.cases // BLOCK))
    if arguments.worker:
        return work(arguments.folder, blocks, arguments.only)
    arguments.folder.mkdir(parents=True, exist_ok=True)
    watch(arguments.folder, blocks, arguments.only)
    table, violations = summary(arguments.folder)
    print(table)
    for violation in violations:
        print(*violation)
    lost = [path.read_text() for path in sorted(arguments.folder.glob("lost-*.json"))]
    print(*lost, sep="\n")
    sys.exit(bool(violations or lost))


if __name__ == "__main__":
    main()
