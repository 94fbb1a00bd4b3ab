"""Hostile inputs through every reader of `audit`: a result or one sentence must come out.

    python benchmarks/fuzz_inputs.py --minutes 10 --seed 1 [--kind manifest]

Manifests, folder trees, settings, ledgers of decisions and runs are made from seeds
(`tests/audit/hostile_inputs.py` has the rule and the generators) and read in a process of its own,
so that a library that crashes or hangs costs that case only. What breaks the rule is printed with
its kind and seed, which make the same case again, and counted by place in the JSON line at the end.
"""

from __future__ import annotations

import argparse
import json
import os
import select
import subprocess
import sys
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))
PATIENCE_S = 150  # s without a line: Python cannot interrupt a library that hangs


# ---- the process that reads ----


def work(kinds: list[str], first: int, folder: Path) -> None:
    """Read case after case for ever, with a line of JSON before and after each."""
    from tests.audit.hostile_inputs import Broken, answer, make_case, make_place

    warnings.simplefilter("error")  # a library that warns writes to the terminal
    place = make_place(folder)
    os.chdir(folder)
    seed = first
    while True:
        kind = kinds[seed % len(kinds)]
        _say(kind=kind, seed=seed)
        codes, broken = [], ""
        try:
            codes = [answer(call) for call in make_case(kind, seed, place)]
        except Broken as error:
            broken = str(error)
        _say(kind=kind, seed=seed, codes=codes, broken=broken, at=round(time.monotonic(), 1))
        seed += 1


def _say(**facts: Any) -> None:
    sys.stdout.write(json.dumps(facts) + "\n")
    sys.stdout.flush()


# ---- the process that counts ----


def fuzz(minutes: float, first: int, kinds: list[str]) -> dict[str, Any]:
    """Read cases until the time is over; `broken` has a case for each kind and place."""
    end, counts, broken = time.monotonic() + 60 * minutes, Counter[str](), dict[str, str]()
    seed = first
    while time.monotonic() < end:
        for facts in _lines(kinds, seed, end):
            seed = max(seed, facts["seed"] + 1)
            kind = facts["kind"]
            counts[f"{kind} cases"] += 1
            counts.update(f"{kind} code {code}" for code in facts["codes"])
            if facts["broken"]:
                counts[f"{kind} broken"] += 1
                where = f"{kind} {facts['broken'][:70]}"
                if where not in broken:
                    broken[where] = f"seed {facts['seed']}: {facts['broken']}"
                    print(f"{kind} {broken[where]}", flush=True)
    return {"seeds": [first, seed - 1], **dict(sorted(counts.items())), "broken": broken}


def _lines(kinds: list[str], first: int, end: float) -> Iterator[dict[str, Any]]:
    """Yield a finished case a time; one that the worker did not survive is broken too."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        words = [sys.executable, __file__, "--work", folder, "--seed", str(first)]
        worker = subprocess.Popen(
            [*words, *(f"--kind={kind}" for kind in kinds)], stdout=subprocess.PIPE
        )
        assert worker.stdout is not None
        begun: dict[str, Any] = {}
        try:
            while time.monotonic() < end:
                ready = select.select([worker.stdout], [], [], PATIENCE_S)[0]
                line = worker.stdout.readline() if ready else b""
                if not line:
                    state = f"it ended with {worker.wait()}" if ready else "it hung"
                    yield begun | {"codes": [], "broken": f"the process did not survive: {state}"}
                    return
                facts = json.loads(line)
                if "codes" in facts:
                    yield facts
                else:
                    begun = facts
        finally:
            worker.kill()
            worker.wait()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--kind", action="append", help="one kind only; repeatable")
    parser.add_argument("--work", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    kinds = args.kind or ["manifest"] * 4 + ["layout"] * 4 + ["config"] * 4 + ["ledger", "run"]
    if args.work:
        work(kinds, args.seed, args.work)
    result = fuzz(args.minutes, args.seed, kinds)
    print(json.dumps({"benchmark": "fuzz_inputs", "minutes": args.minutes, **result}))


if __name__ == "__main__":
    main()
