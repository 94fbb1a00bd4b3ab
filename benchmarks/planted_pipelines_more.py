"""More planted pipelines, of kinds that users have: archives, databases, spikes, drifts, threads.

Written after the rules, and kept apart so that their first results stay visible.
"""

from __future__ import annotations

import functools
import http.server
import io
import sqlite3
import tarfile
import tempfile
import threading
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from planted_pipelines import (
    BATCH,
    BUSY,
    SAMPLES,
    Costs,
    Labelled,
    Pictures,
    Threaded,
    burn,
    nap,
    plant,
    sleepy,
    tf_map,
    tf_range,
    torch_loader,
)
from torch.utils.data import DataLoader, Dataset, IterableDataset, get_worker_info

WORK = tempfile.TemporaryDirectory()
ROWS, MEMBERS, UNPACKED = 6_000, 300, 4_000  # of a database, a tar, an array


# ---- archives and databases ----


@functools.cache
def archive(kind: str) -> Path:
    """A tar, npz or SQLite file of the same small rows."""
    path = Path(WORK.name) / f"rows.{kind}"
    row = np.random.default_rng(0).integers(0, 255, 3_000, np.uint8).tobytes()
    if kind == "tar":
        with tarfile.open(path, "w") as tar:
            for i in range(MEMBERS):
                entry = tarfile.TarInfo(f"{i}.bin")
                entry.size = len(row)
                tar.addfile(entry, io.BytesIO(row))
    elif kind == "npz":
        np.savez_compressed(path, rows=np.zeros((UNPACKED, 3_000), np.uint8))
    else:
        with sqlite3.connect(path) as base:
            base.execute("CREATE TABLE rows (name TEXT, body BLOB)")
            more = ((f"{i}", row) for i in range(ROWS))
            base.executemany("INSERT INTO rows VALUES (?, ?)", more)
            if kind == "indexed":
                base.execute("CREATE INDEX by_name ON rows (name)")
    return path


class Rows(Dataset[Any]):
    """Samples that `take` reads; what it opens is opened in the process that reads."""

    def __init__(self, take: Callable[[int], bytes]) -> None:
        """Keep the reader."""
        self.take = take

    def __len__(self) -> int:
        """As many as an epoch of the other pipelines."""
        return SAMPLES

    def __getitem__(self, i: int) -> torch.Tensor:
        """One row."""
        return torch.tensor(np.frombuffer(self.take(i * 7 % ROWS), np.uint8)[:64])


class TarRows:
    """Members of a tar, looked for by name or by a table of places."""

    def __init__(self, listed: bool) -> None:
        """`listed`: with a table."""
        self.listed, self.tar, self.table = listed, None, {}

    def __call__(self, i: int) -> bytes:
        """The bytes of member i."""
        if self.tar is None:
            self.tar = tarfile.open(archive("tar"))  # noqa: SIM115
            self.table = {m.name: m for m in self.tar.getmembers()}
        name = f"{i % MEMBERS}.bin"
        if self.listed:
            return self.tar.extractfile(self.table[name]).read()
        with tarfile.open(archive("tar")) as tar:  # opened again: all headers are read
            return tar.extractfile(name).read()


@plant("PIPE001", "PIPE025")
def tar_opened_for_each_sample(planted: bool) -> Any:
    archive("tar")
    return DataLoader(Rows(TarRows(not planted)), BATCH, num_workers=1), sleepy()


class SqlRows:
    """Rows of a database, with an index or without."""

    def __init__(self, kind: str) -> None:
        """Which file."""
        self.kind, self.base = kind, None

    def __call__(self, i: int) -> bytes:
        """The body of row i."""
        if self.base is None:
            self.base = sqlite3.connect(archive(self.kind))
        return self.base.execute("SELECT body FROM rows WHERE name = ?", (f"{i}",)).fetchone()[0]


@plant("PIPE001", "PIPE025")
def database_without_an_index(planted: bool) -> Any:
    kind = "plain" if planted else "indexed"
    archive(kind)
    return DataLoader(Rows(SqlRows(kind)), BATCH, num_workers=1), sleepy()


def _npz_row(i: int) -> bytes:
    return np.load(archive("npz"))["rows"][i % UNPACKED].tobytes()


def _plain_row(i: int) -> bytes:
    return bytes(3_000)


@plant("PIPE001", "PIPE025")
def npz_unpacked_for_each_sample(planted: bool) -> Any:
    archive("npz")
    return DataLoader(Rows(_npz_row if planted else _plain_row), BATCH, num_workers=1), sleepy()


class Answers(http.server.BaseHTTPRequestHandler):
    """Answers late."""

    def do_GET(self) -> None:
        """A few bytes after a while."""
        nap(12)
        self.send_response(200)
        self.send_header("Content-Length", "64")
        self.end_headers()
        self.wfile.write(bytes(64))

    def log_message(self, *args: Any) -> None:
        """In silence."""


@functools.cache
def address() -> str:
    """A local server that is as far away as a store in another building."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Answers)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return f"http://127.0.0.1:{server.server_port}/x"


class Fetched:
    """Bytes of an address."""

    def __init__(self, url: str) -> None:
        """Where."""
        self.url = url

    def __call__(self, i: int) -> bytes:
        """Ask."""
        with urllib.request.urlopen(self.url) as answer:
            return answer.read()


@plant("PIPE024")
def samples_from_a_web_server(planted: bool) -> Any:
    take = Fetched(address()) if planted else _plain_row
    return DataLoader(Rows(take), BATCH, num_workers=2), sleepy()


# ---- uneven and rare ----


@plant("PIPE008")
def spikes_in_a_few_samples(planted: bool) -> Any:
    costs = Costs(straggler=(160, 260.0) if planted else (0, 0.0))
    return torch_loader(costs), sleepy()


class Dealt(IterableDataset[Any]):
    """A stream of which one worker has the heavy shards."""

    def __init__(self, ms: float) -> None:
        """Milliseconds of a sample of worker 1."""
        self.ms = ms

    def __iter__(self) -> Iterator[torch.Tensor]:
        """Samples without end."""
        info = get_worker_info()
        heavy = info is not None and info.id == 1
        while True:
            nap(self.ms if heavy else 1.0)
            yield torch.zeros(8)


@plant("PIPE030")
def heavy_shards_in_one_worker(planted: bool) -> Any:
    return DataLoader(Dealt(14.0 if planted else 1.0), BATCH, num_workers=3), sleepy()


class Shards(IterableDataset[Any]):
    """A stream of which each worker has so many batches."""

    def __init__(self, held: tuple[int, ...]) -> None:
        """By worker."""
        self.held = held

    def __iter__(self) -> Iterator[torch.Tensor]:
        """The worker's samples."""
        info = get_worker_info()
        for _ in range(self.held[info.id if info else 0] * BATCH):
            nap(4.0)
            yield torch.zeros(8)


@plant("PIPE032")
def one_shard_for_two_workers(planted: bool) -> Any:
    held = (160, 0) if planted else (80, 80)
    return DataLoader(Shards(held), BATCH, num_workers=2), sleepy()


class Drifting:
    """A step that takes longer and longer."""

    def __init__(self, ms: float) -> None:
        """Milliseconds at the start."""
        self.ms = ms

    def __call__(self, batch: Any) -> None:
        """Compute."""
        self.ms *= 1.0004
        nap(self.ms)


@plant("PIPE001")
def slow_read_beside_a_drifting_step(planted: bool) -> Any:
    return torch_loader(Costs(read=9.0 if planted else 0)), Drifting(18)


class Accumulating:
    """Every fourth step is the optimizer's."""

    def __init__(self, ms: float, more: float) -> None:
        """Milliseconds."""
        self.ms, self.more, self.count = ms, more, 0

    def __call__(self, batch: Any) -> None:
        """Compute; now and then update."""
        self.count += 1
        nap(self.ms + (self.more if self.count % 4 == 0 else 0))


@plant("PIPE002")
def slow_decode_beside_accumulation(planted: bool) -> Any:
    return torch_loader(Costs(decode=9.0 if planted else 0)), Accumulating(15, 20)


# ---- collate, transform, threads ----


def pad_slowly(rows: list[Any]) -> Any:
    """Pad sequences by a Python loop."""
    nap(60)
    return {"x": torch.stack([r["x"] for r in rows]), "labels": [r["labels"] for r in rows]}


def pad(rows: list[Any]) -> Any:
    """The same at once."""
    return {"x": torch.stack([r["x"] for r in rows]), "labels": [r["labels"] for r in rows]}


@plant("PIPE004")
def padding_in_python(planted: bool) -> Any:
    collate = pad_slowly if planted else pad
    return DataLoader(Labelled(Costs()), BATCH, num_workers=2, collate_fn=collate), sleepy()


class Resized(Dataset[Any]):
    """Pictures made smaller at every read."""

    def __init__(self, side: int) -> None:
        """Keep one decoded picture of that side."""
        self.picture = Image.fromarray(np.zeros((side, side, 3), np.uint8))
        self.transform = self.shrink

    def shrink(self, picture: Image.Image) -> Image.Image:
        """A good filter over many pixels."""
        return picture.resize((64, 64), Image.Resampling.LANCZOS)

    def __len__(self) -> int:
        """Length of what is wrapped."""
        return SAMPLES

    def __getitem__(self, i: int) -> torch.Tensor:
        """One picture."""
        return torch.tensor(np.asarray(self.transform(self.picture)))


@plant("PIPE003")
def large_pictures_made_small(planted: bool) -> Any:
    return DataLoader(Resized(900 if planted else 64), BATCH, num_workers=1), sleepy()


class Holding(Threaded):
    """The thread that prepares holds the interpreter while it does."""

    def decode(self) -> torch.Tensor:
        """Python work."""
        burn(self.ms)
        return torch.zeros(8)


@plant("PIPE002", "PIPE012", "PIPE025")
def python_work_in_a_thread(planted: bool) -> Any:
    return Holding(4.5 if planted else 0.0), sleepy()


# ---- beside the loader ----


class SlowDisk(io.BytesIO):
    """A file on a disk that takes its time."""

    def write(self, data: Any) -> int:
        """Wait for the disk."""
        nap(len(data) / 1e6 * 140)
        return super().write(data)


class Saving:
    """A step that keeps its weights now and then, 1 MB of them."""

    def __init__(self, every: int) -> None:
        """Every so many steps; 0: never."""
        self.every, self.count, self.weights = every, 0, torch.zeros(250_000)

    def keep(self) -> None:
        """As long as the disk takes."""
        torch.save({"weights": self.weights}, SlowDisk())

    def __call__(self, batch: Any) -> None:
        """Compute, keep."""
        self.count += 1
        nap(16)
        if self.every and self.count % self.every == 0:
            self.keep()


@plant("PIPE014", bound=False)
def weights_kept_every_tenth_step(planted: bool) -> Any:
    return torch_loader(Costs()), Saving(10 if planted else 0)


@plant("PIPE026")
def tf_files_one_after_the_other(planted: bool) -> Any:
    import tensorflow as tf

    def file(i: Any) -> Any:
        return tf.data.Dataset.range(50).map(tf_map(4.0))

    cycle = {"cycle_length": 1} if planted else {"cycle_length": 4, "num_parallel_calls": 4}
    return tf_range().interleave(file, **cycle).batch(BATCH).prefetch(2), sleepy()


# ---- nothing wrong ----


@plant("PIPE000", bound=False)
def healthy_accumulation(planted: bool) -> Any:
    return torch_loader(Costs()), Accumulating(40, 60)


@plant("PIPE000", bound=False)
def healthy_drifting_step(planted: bool) -> Any:
    return torch_loader(Costs()), Drifting(45)


@plant("PIPE000", bound=False)
def healthy_indexed_database(planted: bool) -> Any:
    archive("indexed")
    return DataLoader(Rows(SqlRows("indexed")), BATCH, num_workers=1), sleepy(50)


@plant("PIPE000", bound=False)
def healthy_listed_tar(planted: bool) -> Any:
    archive("tar")
    return DataLoader(Rows(TarRows(listed=True)), BATCH, num_workers=1), sleepy(50)


@plant("PIPE000", bound=False)
def healthy_web_server(planted: bool) -> Any:
    address()
    return DataLoader(Rows(Fetched(address())), BATCH, num_workers=2, prefetch_factor=4), sleepy(
        120
    )


@plant("PIPE000", bound=False)
def healthy_rare_spikes(planted: bool) -> Any:
    # 60 ms once in 500 samples: the batches ahead ride it out
    return torch_loader(Costs(straggler=(500, 60.0)), prefetch_factor=4), sleepy(50)


@plant("PIPE000", bound=False)
def healthy_thread(planted: bool) -> Any:
    return Threaded(1.0), sleepy(50)


@plant("PIPE000", bound=False)
def healthy_uneven_shards(planted: bool) -> Any:
    return DataLoader(Dealt(4.0), BATCH, num_workers=3), sleepy(50)


def reading(ms: float) -> Callable[[Any], None]:
    """A step that uses every field."""

    def step(batch: Any) -> None:
        nap(ms + 0 * len(batch["x"]) * len(batch["labels"]))

    return step


@plant("PIPE000", bound=False)
def healthy_samples_of_dictionaries(planted: bool) -> Any:
    return DataLoader(Labelled(Costs(read=0)), BATCH, num_workers=2, collate_fn=pad), reading(50)


@plant("PIPE000", bound=False)
def healthy_lazy_pictures(planted: bool) -> Any:
    return DataLoader(Pictures(Costs(decode=1.0)), BATCH, num_workers=2), sleepy(80)


BUSY.update(
    {"large_pictures_made_small", "python_work_in_a_thread", "npz_unpacked_for_each_sample"}
)
BUSY.update({"tar_opened_for_each_sample", "database_without_an_index"})
