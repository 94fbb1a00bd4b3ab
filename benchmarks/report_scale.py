"""What reports, a diff and an export cost at 100,000 findings: CPU seconds and peak memory of each.

A synthetic run is written with the real schema and the real store (that of `app_scale.py`), and a
second one that lacks a twentieth of the findings. Each command is a process of its own, started as
a person would; its CPU time holds that of the processes it started, its memory is the peak resident
set of the command itself. Targets on 2 cores: each below 30 s and 2 GB.

    python benchmarks/report_scale.py --rows 200000 --findings 100000

The last line is one JSON document.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

LIMIT_S, LIMIT_GB = 30.0, 2.0


def make_runs(earlier: Path, run: Path, rows: int, findings: int, decisions: int) -> None:
    """Write both runs, and decide about the first findings of the later one."""
    from app_scale import make_run

    import audit

    make_run(earlier, rows, findings)
    make_run(run, rows, findings * 19 // 20)
    decided = audit.open(run)
    prints = decided.findings["fingerprint"].head(decisions).to_list()
    if prints:
        decided.decide(prints, "keep")


def commands(run: Path, earlier: Path, out: Path) -> dict[str, list[str]]:
    """Return what is measured, by name."""
    kinds = ("txt", "md", "html", "json", "sarif", "xml")
    found = {kind: ["report", str(run), "-o", str(out / f"x.{kind}")] for kind in kinds}
    found["card"] = ["report", str(run), "-o", str(out / "card.md")]
    found["list"] = ["report", str(run), "--list", "DUP003"]
    found["diff"] = ["diff", str(earlier), str(run), "--json"]
    found["export"] = ["export", str(run), "--out", str(out / "tables")]
    return found


def measure(words: list[str], folder: Path) -> dict[str, float]:
    """Run a command; returns seconds of CPU and of the clock, GB at the peak, MB printed."""
    began, printed = time.perf_counter(), folder / "stdout"
    with printed.open("wb") as out:
        process = subprocess.Popen([sys.executable, "-m", "audit", *words], stdout=out)
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode not in (0, 1):
        raise SystemExit(f"audit {' '.join(words)} ended with {process.returncode}")
    return {
        "cpu_s": round(used.ru_utime + used.ru_stime, 2),
        "wall_s": round(time.perf_counter() - began, 2),
        "peak_gb": round(used.ru_maxrss / 1e6, 3),  # kilobytes on Linux
        "printed_mb": round(printed.stat().st_size / 1e6, 1),
    }


def main() -> int:
    """Make the runs, measure, print; 1 where something is over a target."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--findings", type=int, default=100_000)
    parser.add_argument("--decisions", type=int, default=10_000)
    parser.add_argument("--only", nargs="*", default=[])
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        earlier, run = folder / "earlier", folder / "run"
        sizes = (args.rows, args.findings, args.decisions)
        # In a process of its own: what it holds would count as the peak of those started after it.
        maker = multiprocessing.get_context("spawn").Process(
            target=make_runs, args=(earlier, run, *sizes)
        )
        maker.start()
        maker.join()
        found = {}
        for name, words in commands(run, earlier, folder).items():
            if not args.only or name in args.only:
                found[name] = measure(words, folder)
                print(f"{name:<7} {found[name]}", flush=True)
    over = [n for n, f in found.items() if f["cpu_s"] > LIMIT_S or f["peak_gb"] > LIMIT_GB]
    print(json.dumps({"rows": args.rows, "findings": args.findings, "over": over, **found}))
    return int(bool(over))


if __name__ == "__main__":
    sys.exit(main())
