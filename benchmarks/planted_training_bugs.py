"""Planted defects in loaders and trainings: is each named first or second, and no twin failed?

    python benchmarks/planted_training_bugs.py [--runs 5] [--first-seed 0] [--only WORD,WORD]
        [--kind loaders|streams|trainings|scripts|more|unseen|unseen2|keras] [--results F.jsonl]

A defect counts as named where one of its codes is the first or second failed check. The last line
is one JSON document.
"""

from __future__ import annotations

import argparse
import importlib
import json
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import torch

from pipeline_profiler.checking.check import select_checks
from pipeline_profiler.checking.loader_subject import LoaderSubject
from pipeline_profiler.checking.runner import run_checks
from pipeline_profiler.checking.subject_choice import choose_subject
from pipeline_profiler.checking.torch_state import seed_everything

KINDS = {
    "loaders": ("LOAD", "planted_loaders"),
    "streams": ("LOAD", "planted_streams"),
    "trainings": ("TRAIN", "planted_trainings"),
    "scripts": ("TRAIN", "planted_scripts"),
    "more": ("TRAIN", "planted_scripts_more"),
    "unseen": ("TRAIN", "planted_scripts_unseen"),
    "unseen2": ("TRAIN", "planted_scripts_unseen_second"),
    "keras": ("TRAIN", "planted_keras"),
}
SECONDS = 120.0


def subject_of(family, maker, seed):
    """What the command would make of the user's file."""
    if family == "TRAIN":
        return choose_subject({"make_training": lambda: maker(seed)}, seed)
    seed_everything(seed)
    make, options = maker(seed)
    return LoaderSubject(make, seed=seed, **options)


def failed_codes(family, maker, seed):
    """(failed checks, causes first; checks of ours that broke)."""
    report = run_checks(select_checks(family), subject_of(family, maker, seed), SECONDS, seed)
    for result in report.broken:
        print(result.broken, file=sys.stderr)
    unsaid = [r.answer.sentence for r in report.results if r.users]
    return [r.check.code for r in report.failed], [r.check.code for r in report.broken], unsaid


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--only", default="")
    parser.add_argument("--kind", choices=KINDS)
    parser.add_argument("--results", help="JSON lines: rows there are not run again")
    args = parser.parse_args()
    torch.set_num_threads(1)
    kept = kept_rows(args.results)
    total = {k: measure(k, args, kept) for k in KINDS if args.kind in (None, k)}
    print(json.dumps(total))


def measure(kind, args, kept):
    """The figures of one kind of scripts; every row is kept as it comes."""
    family, name = KINDS[kind]
    module, rows, start = importlib.import_module(name), [], time.monotonic()
    made = [(n, codes, maker) for n, codes, maker in module.DEFECTS]
    made += [(n, None, maker) for n, maker in module.TWINS]
    for seed in range(args.first_seed, args.first_seed + args.runs):
        for name, codes, maker in made:
            if any(word in name for word in args.only.split(",")):
                row = kept.get((kind, name, seed)) or row_of(kind, family, name, codes, maker, seed)
                rows.append(row)
                if args.results and (kind, name, seed) not in kept:
                    with open(args.results, "a") as file:
                        file.write(json.dumps(row) + "\n")
                twin, hit = row["twin"], row["hit"]
                good = not row["failed"] if twin else hit
                note = f" [{row['unsaid'][0]}]" if row["unsaid"] else ""
                said = " ".join(row["failed"]) or "-"
                print(
                    f"{'  ' if good else '! '}{name}{' (healthy)' * twin}: {said}{note}", flush=True
                )
    planted, twins = ([r for r in rows if r["twin"] == twin] for twin in (False, True))
    return {
        "planted": len(planted),
        "named": sum(r["hit"] for r in planted),
        "twins": len(twins),
        "failed_twins": sum(bool(r["failed"]) for r in twins),
        "broken": sum(len(r["broken"]) for r in rows),
        "missed": sorted({r["name"] for r in planted if not r["hit"]}),
        "alarms": sorted({r["name"] for r in twins if r["failed"]}),
        "seconds": round(time.monotonic() - start),
    }


def row_of(kind, family, name, codes, maker, seed):
    failed, broken, unsaid = failed_codes(family, maker, seed)
    return {"kind": kind, "name": name, "seed": seed, "twin": codes is None, "failed": failed,
            "hit": bool(codes and codes & set(failed[:2])), "broken": broken,
            "unsaid": unsaid}  # fmt: skip


def kept_rows(path):
    if not path or not Path(path).exists():
        return {}
    rows = [json.loads(line) for line in Path(path).read_text().splitlines()]
    return {(r["kind"], r["name"], r["seed"]): r for r in rows}


if __name__ == "__main__":
    main()
