"""Planning and drawing from 10 million rows: seconds and peak memory, on at most two cores.

Rows are made up in memory (100 classes of unequal size, a content hash each, 0.1 % of them in
duplicate groups, 2 % excluded); making them is not timed, their memory counts. Run from the
project's root:

    python benchmarks/subset_speed.py               # 10,000,000 rows
    python benchmarks/subset_speed.py --rows 100000
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import sys
import time

os.environ.setdefault("POLARS_MAX_THREADS", "2")

import numpy as np
import polars as pl

from audit.subset import Goal, draw_subset, make_plan
from audit.subset.random_numbers import splitmix64

LIMIT_SECONDS, LIMIT_GB = 20.0, 4.0
CLASSES = 100


def make_rows(count: int) -> pl.DataFrame:
    """Return a frame of `count` files with classes, hashes, duplicates and exclusions."""
    number = np.arange(count, dtype=np.uint64)
    share = splitmix64(number) / 2.0**64
    classes = pl.Series([f"class{k:03d}" for k in range(CLASSES)])
    label = classes.gather(pl.Series((CLASSES * share**1.5).astype(np.int64)))
    digest = pl.DataFrame({"h": splitmix64(number + np.uint64(count))}).select(
        pl.col("h").cast(pl.String).str.zfill(64)
    )["h"]
    row = pl.int_range(pl.len())
    frame = pl.DataFrame({"label": label, "content_hash": digest})
    return frame.select(
        sample_id=pl.format("test/{}.jpg", row),
        label="label",
        content_hash="content_hash",
        excluded_reason=pl.when(row % 50 == 0).then(pl.lit("unreadable file")),
        duplicate_group=pl.when(row % 1000 < 2).then(pl.format("d{}", row // 1000)),
        brightness=pl.Series(splitmix64(number + np.uint64(3 * count)) / 2.0**64),
    )


def peak_gb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=10_000_000)
    rows = parser.parse_args().rows
    frame = make_rows(rows)
    draw_subset(
        make_rows(250_000), make_plan(make_rows(1000), Goal(half_width=0.05)).recipe, 1
    )  # compile
    started = time.perf_counter()
    made = make_plan(frame, Goal(half_width=0.01))
    planned = time.perf_counter()
    plan_peak = peak_gb()
    subset = draw_subset(frame, made.recipe, seed=7)
    drawn = time.perf_counter()
    peak = peak_gb()
    print(
        f"{rows:,} rows: plan {planned - started:.1f} s, draw of {subset.n_units:,} units "
        f"{drawn - planned:.1f} s, peak {peak:.2f} GB ({plan_peak:.2f} after planning; the rows "
        f"are {frame.estimated_size() / 1e9:.2f} GB)."
    )
    total = drawn - started
    held = total < LIMIT_SECONDS and peak < LIMIT_GB
    figures = {
        "benchmark": "subset_speed", "rows": rows, "plan_s": round(planned - started, 2),
        "draw_s": round(drawn - planned, 2), "total_s": round(total, 2),
        "peak_gb": round(peak, 2), "cores": 2, "within_limits": held,
    }  # fmt: skip
    print(json.dumps(figures))
    return 0 if held else 1


if __name__ == "__main__":
    sys.exit(main())
