"""Does the precision sweep find the batch size from which a loader is too slow?

    python benchmarks/precision_crossing.py [--seconds 40]

A step sleeps 20 ms whatever the batch, so a batch of N needs N / 20 ms samples/s. A loader with one
worker sleeps 1 / R seconds a sample, so it delivers R samples/s at most. The truth is a batch of
20 ms x R. Held: the crossing within 15 % of it for each R, no rate with the loader above the loader
alone, and a half-width of at most 10 % in every row.
"""

from __future__ import annotations

import time
from functools import partial

import torch
from bench import Document, hall, measures
from torch.utils.data import DataLoader, Dataset

from pipeline_profiler.precision.backend_torch import OwnStep, TorchBackend
from pipeline_profiler.precision.estimate import HALF_WIDTH, relative_half_width
from pipeline_profiler.precision.plan import ModelJob, SweepOptions
from pipeline_profiler.precision.summary import summarise
from pipeline_profiler.precision.sweep import measure_precisions
from pipeline_profiler.precision.table import measurement_from_dict

app = hall(__doc__)
STEP_S, SAMPLES = 0.020, 512
SIZES = (8, 16, 32, 64, 128)
RATES = (600, 1200, 2500)
WITHIN = 0.15


class Slow(Dataset[torch.Tensor]):
    """Samples that each take 1 / `rate` seconds."""

    def __init__(self, rate: float) -> None:
        self.rate = rate

    def __len__(self) -> int:
        return SAMPLES

    def __getitem__(self, i: int) -> torch.Tensor:
        time.sleep(1 / self.rate)
        return torch.zeros(4)


def step(batch: object, precision: str) -> None:
    """A step of constant time."""
    time.sleep(STEP_S)


def make_loader(rate: float, size: int) -> DataLoader[torch.Tensor]:
    """A loader with one worker that lives on."""
    return DataLoader(Slow(rate), size, num_workers=1, drop_last=True, persistent_workers=True)


def measure(rate: float, seconds: float) -> Document:
    """One sweep: the crossing beside the truth, and what its rows hold."""
    options = SweepOptions(batch_sizes=SIZES, precisions=("fp32",), seconds=seconds)
    job = ModelJob("sleep", lambda: OwnStep(step), partial(make_loader, rate), pairs=False)
    begin = time.perf_counter()
    session = measure_precisions(TorchBackend("cpu"), [job], options)
    table = summarise(measurement_from_dict(session.results["precision"]))
    above = wide = 0
    for row in table.rows:
        loader = table.loader_of(row.cell)
        if row.with_loader_per_s and loader and row.preloaded_per_s:
            above += row.with_loader_per_s.value > loader.alone_per_s.value
            widths = map(relative_half_width, (row.preloaded_per_s, row.with_loader_per_s))
            wide += max(widths) > HALF_WIDTH
    # the sleep of a sample is longer than asked for: the loader alone tells its true rate
    alone = {each.source.batch_size: each.alone_per_s.value for each in table.loaders}
    truth, (crossing,) = STEP_S * alone[32], table.crossings
    return {
        "rate": rate,
        "truth": round(truth, 1),
        "crossing": crossing.batch_size and round(crossing.batch_size, 1),
        "rows": len(table.rows),
        "above the loader": above,
        "wider than 10 %": wide,
        "seconds": round(time.perf_counter() - begin, 1),
    }


@measures(app)
def main(seconds: float = 40.0) -> tuple[Document, bool]:
    """All rates; ends with 1 where a target is missed."""
    rows = [measure(rate, seconds) for rate in RATES]
    for row in rows:
        print(row, flush=True)
    right = sum(
        row["crossing"] is not None and abs(row["crossing"] / row["truth"] - 1) <= WITHIN
        for row in rows
    )
    above, wide = (sum(row[key] for row in rows) for key in ("above the loader", "wider than 10 %"))
    found = {"right": right, "of": len(rows), "above": above, "wide": wide}
    return found, right == len(rows) and not above and not wide


if __name__ == "__main__":
    app()
