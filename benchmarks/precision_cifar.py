"""One CIFAR-10 epoch of a dual path network: FP32 against FP16, by batch and loss scale.

The published table this follows in form (one epoch with augmentation, a 24 GB card): FP32 213 s at
batch 128 and 204 s at 256, out of memory at 512; FP16 169 s, 150 s (13 GB), 140 s (21.9 GB), out of
memory at 640; static loss scales 64, 128 and 256 made no difference. Here each cell is a whole
epoch with the loader attached, its peak memory, the AMP steps skipped, and the loss at its end.

    python benchmarks/precision_cifar.py [--data cifar10-mini.tar] [--model dpn92]

On a GPU: DPN-92, 50,000 samples per epoch, the batches and scales of the table. On a CPU a toy:
DPN-26 on a few steps, BF16 in place of FP16; epochs are extrapolated from the steps timed, and say
so. FP16 there is one tiny row of seconds per step: a CPU has no FP16 arithmetic, so no epoch is
computed from it.
`--data` is a tar of `*/train/<class>/*.jpg`; without it the pictures are random. Last line: JSON.
"""

from __future__ import annotations

import argparse
import io
import itertools
import json
import os
import sys
import tarfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import numpy as np
from numpy.typing import NDArray

os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # torch's profiler talks on stderr

from pipeline_profiler.precision.backend_torch import TorchBackend
from pipeline_profiler.precision.batches import Loader
from pipeline_profiler.precision.cell import Cell, Recipe
from pipeline_profiler.precision.image_data import SIDE, ImageData, NoiseImages, Pixels
from pipeline_profiler.precision.image_loaders import make_torch_loader
from pipeline_profiler.precision.models import SHIPPED
from pipeline_profiler.precision.trainer import Trainer, is_out_of_memory

PADDING, CLASSES, EPOCH = 4, 10, 50_000
PUBLISHED = {
    ("fp32", 128): "213 s",
    ("fp32", 256): "204 s",
    ("fp32", 512): "out of memory",
    ("fp16", 128): "169 s",
    ("fp16", 256): "150 s, 13 GB",
    ("fp16", 512): "140 s, 21.9 GB",
    ("fp16", 640): "out of memory",
}


Row: TypeAlias = dict[str, Any]  # one line of the JSON


class Pictures:
    """Decoded once into memory as CIFAR is; padded, cropped and flipped at each reading."""

    def __init__(self, images: NDArray[np.uint8], labels: list[int], length: int) -> None:
        """`images` uint8 (N, 32, 32, 3); `length` samples per epoch."""
        self.images, self.labels, self.length, self.side = images, labels, length, SIDE

    def __len__(self) -> int:
        """Samples per epoch."""
        return self.length

    def __getitem__(self, i: int) -> tuple[Pixels, int]:
        """One augmented picture (3, 32, 32) in [-1, 1] and its label."""
        at = i % len(self.images)
        rng = np.random.default_rng((i, np.random.randint(2**31)))
        wide = np.pad(self.images[at], ((PADDING, PADDING), (PADDING, PADDING), (0, 0)))
        y, x = rng.integers(0, 2 * PADDING + 1, 2)
        crop = wide[y : y + SIDE, x : x + SIDE]
        if rng.integers(2):
            crop = crop[:, ::-1]
        chosen = np.ascontiguousarray(crop.transpose(2, 0, 1), dtype=np.float32)
        return chosen / 127.5 - 1, self.labels[at]


def load_pictures(path: str | None, length: int) -> ImageData:
    """The tar's training pictures, or noise of the same shape."""
    if path is None:
        return ImageData(
            NoiseImages(CLASSES, SIDE, length), CLASSES, ("random pictures, no --data",)
        )
    from PIL import Image

    images, names = [], []
    with tarfile.open(path) as tar:
        for member in sorted(tar.getmembers(), key=lambda m: m.name):
            parts = Path(member.name).parts
            if member.isfile() and parts[-3:-2] == ("train",):
                picture = Image.open(io.BytesIO(tar.extractfile(member).read())).convert("RGB")
                images.append(np.array(picture.resize((SIDE, SIDE))))
                names.append(parts[-2])
    if not images:
        raise SystemExit(f"{path} holds no */train/<class>/*.jpg: give another --data.")
    classes = sorted(set(names))
    labels = [classes.index(name) for name in names]
    text = f"{len(images)} CIFAR pictures in {len(classes)} classes, read {length} per epoch"
    return ImageData(Pictures(np.stack(images), labels, length), len(classes), (text,))


@dataclass
class EpochPlan:
    """What this device can do: cells, steps of each (None: the whole epoch)."""

    model: str
    cells: list[Cell]
    steps: int | None
    tiny: int


def plan_epochs(device: str, args: argparse.Namespace) -> EpochPlan:
    """The published cells on a GPU, a toy on a CPU."""
    scales = [part.strip() for part in args.loss_scale.split(",")]
    sizes = [int(part) for part in args.batch_sizes.split(",")] if args.batch_sizes else None
    if device == "cuda":
        model, batches = args.model or "dpn92", sizes or [128, 256, 512, 640]
        full = [Cell(model, size, "fp32") for size in batches]
        half = [Cell(model, size, "fp16", scale) for scale in scales for size in batches]
        return EpochPlan(model, full + half, args.steps, args.steps or 0)
    model = args.model or "dpn26"
    toy = [Cell(model, size, kind) for kind in ("fp32", "bf16") for size in sizes or [8, 16]]
    tiny = [Cell(model, 2, "fp16", scale) for scale in scales]
    return EpochPlan(model, toy + tiny, args.steps or 4, 2)


def time_epoch(
    backend: TorchBackend, plan: EpochPlan, data: ImageData, cell: Cell, workers: int | None
) -> Row:
    """One cell from scratch; what goes wrong with memory is its row."""
    tiny = cell.precision == "fp16" and backend.device == "cpu"
    row: Row = {"precision": cell.precision, "batch": cell.batch_size}
    row |= {"loss_scale": cell.loss_scale, "tiny": tiny}
    if len(data.dataset) < cell.batch_size:
        return row | {"status": "batch larger than the data"}
    try:
        with backend.using(cell.precision):
            row |= train_epoch(backend, plan, data, cell, workers)
    except Exception as error:
        if not is_out_of_memory(error):
            raise
        row["status"] = "out of memory"
    # outside the except block: its traceback would keep the tensors of the failed step alive
    backend.release()
    return row


def train_epoch(
    backend: TorchBackend, plan: EpochPlan, data: ImageData, cell: Cell, workers: int | None
) -> Row:
    """The figures of one cell; seconds of the epoch by steps timed after the first two."""
    tiny = cell.precision == "fp16" and backend.device == "cpu"
    make = SHIPPED[plan.model]
    trainer = backend.new_trainer(lambda: make(data.classes), cell, Recipe(lr=0.05))
    loader = make_torch_loader(data, cell.batch_size, workers, backend.device == "cuda")
    steps, seconds = drive(trainer, loader, plan.tiny if tiny else (plan.steps or len(loader)))
    losses, skipped = trainer.losses(), len(trainer.skipped())
    peak = trainer.peak_memory(next(iter(loader))).allocated
    step_s = seconds / steps
    return {
        "status": "ok",
        "steps_timed": steps,
        "step_s": step_s,
        "epoch_s": None if tiny else step_s * (len(data.dataset) // cell.batch_size),
        "whole_epoch": plan.steps is None and not tiny,
        "peak_bytes": peak,
        "skipped": skipped,
        "loss": float(np.mean(losses[-10:])),
    }


def drive(trainer: Trainer, loader: Loader, total: int) -> tuple[int, float]:
    """Two steps of warm-up, then `total` with the device synchronised at the edges only."""
    batches = itertools.chain.from_iterable(itertools.repeat(loader))
    for _ in range(2):
        trainer.step(next(batches))
    trainer.synchronise()
    start = time.perf_counter()
    for _ in range(total):
        trainer.step(next(batches))
    trainer.synchronise()
    return total, time.perf_counter() - start


def format_line(row: Row, device: str) -> str:
    """One row of the table beside the published one."""
    published = PUBLISHED.get((row["precision"], row["batch"]), "") if device == "cuda" else ""
    head = f"{row['precision']:5} {row['batch']:>5} {row['loss_scale'] or '-':>7}"
    if row["status"] != "ok":
        return f"{head}  {row['status']:40}  {published}"
    memory = "n/a" if row["peak_bytes"] is None else f"{row['peak_bytes'] / 1e9:.1f} GB"
    how = "" if row["whole_epoch"] else f" (from {row['steps_timed']} steps)"
    note = " TINY: a CPU has no FP16 arithmetic" if row["tiny"] else ""
    took = f"{row['step_s']:.2f} s per step" if row["tiny"] else f"{row['epoch_s']:.0f} s"
    shown = f"{took}{how}, {memory}, loss {row['loss']:.3f}, {row['skipped']} skipped"
    return f"{head}  {shown:60}  {published}{note}"


def parse_arguments() -> argparse.Namespace:
    ap = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    ap.add_argument("--data", help="tar of */train/<class>/*.jpg")
    ap.add_argument("--model", choices=sorted(SHIPPED))
    ap.add_argument("--batch-sizes", help="default: the published ones; CPU 8,16")
    ap.add_argument("--loss-scale", default="64,128,256")
    ap.add_argument("--samples", type=int, default=EPOCH, help="samples per epoch (50,000)")
    ap.add_argument("--steps", type=int, help="time this many steps instead of a whole epoch")
    ap.add_argument("--workers", type=int)
    ap.add_argument("--device", choices=("cuda", "cpu"))
    return ap.parse_args()


def main() -> None:
    args = parse_arguments()
    backend = TorchBackend(args.device)
    plan, data = plan_epochs(backend.device, args), load_pictures(args.data, args.samples)
    print(f"{plan.model} on {backend.device_name}; {data.notes[0]}")
    print("prec. batch   scale  this device, one epoch" + " " * 40 + "published, 24 GB card")
    rows = []
    for cell in plan.cells:
        rows.append(time_epoch(backend, plan, data, cell, args.workers))
        print(format_line(rows[-1], backend.device), flush=True)
    document = {
        "benchmark": "precision_cifar",
        "model": plan.model,
        "device": backend.device_name,
        "samples": args.samples,
        "flags": {kind: backend.flags(kind) for kind in ("fp32", "fp16")},
        "rows": rows,
    }
    print(json.dumps(document))


if __name__ == "__main__":
    main()
