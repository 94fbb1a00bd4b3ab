"""Planted defects in loaders and trainings: is each named first or second, and no twin failed?

    python benchmarks/planted_training_bugs.py [--runs 5] [--first-seed 0] [--only WORD,WORD]
        [--kind loaders|streams|trainings|scripts|more|unseen|keras]

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
    args = parser.parse_args()
    torch.set_num_threads(1)
    total = {}
    for kind, (family, module) in KINDS.items():
        if args.kind in (None, kind):
            total[kind] = measure(family, importlib.import_module(module), args)
    print(json.dumps(total))


def measure(family, module, args):
    named = planted = false = twins = broke = 0
    missed, alarms = [], []
    start = time.monotonic()
    for seed in range(args.first_seed, args.first_seed + args.runs):
        for name, codes, maker in module.DEFECTS:
            if not any(word in name for word in args.only.split(",")):
                continue
            failed, broken, unsaid = failed_codes(family, maker, seed)
            hit = bool(codes & set(failed[:2]))
            planted, named, broke = planted + 1, named + hit, broke + len(broken)
            if not hit:
                missed.append(name)
            note = f" [{unsaid[0]}]" if unsaid else ""
            print(f"{'  ' if hit else '! '}{name}: {' '.join(failed) or '-'}{note}", flush=True)
        for name, maker in module.TWINS:
            if not any(word in name for word in args.only.split(",")):
                continue
            failed, broken, unsaid = failed_codes(family, maker, seed)
            twins, false, broke = twins + 1, false + bool(failed), broke + len(broken)
            if failed:
                alarms.append(name)
            note = f" [{unsaid[0]}]" if unsaid else ""
            print(
                f"{'! ' if failed else '  '}{name} (healthy): {' '.join(failed) or '-'}{note}",
                flush=True,
            )
    return {
        "planted": planted,
        "named": named,
        "twins": twins,
        "failed_twins": false,
        "broken": broke,
        "missed": sorted(set(missed)),
        "alarms": sorted(set(alarms)),
        "seconds": round(time.monotonic() - start),
    }


if __name__ == "__main__":
    main()
