"""Ask a model for the vectors of pictures: what is stored is not asked again, nothing is lost.

Pictures are decoded by worker processes, in chunks of the model's batch, and given to the model as
they come. Where a batch fails, its pictures are asked for one at a time, so that a picture the
model cannot bear costs only itself. Vectors go to disk every few thousand, or every ten seconds.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from audit.embeddings.embedder import Embedder, quiet_stdout
from audit.embeddings.vector_parts import VectorParts
from audit.errors import UsageError, error_text, find_machine_error
from audit.executors import Executor, Failure
from audit.picture.decode import Limits
from audit.picture.squares import SquareJob, SquareMaker
from audit.sources.paths import reading_place

Floats = npt.NDArray[np.float32]
Advance = Callable[[int, int, int], None]
HOPELESS = 16
"""Pictures after which a model that gave no vector at all is told to be mended."""
PART_ROWS = 4096
PART_S = 10.0


@dataclass(frozen=True, slots=True)
class Answers:
    """`vectors` (n, d), zero where `found` (n,) is not set; `failures`: why, by sample id."""

    vectors: Floats
    found: npt.NDArray[np.bool_]
    failures: dict[str, str]
    asked: int


def ask_model(
    run: Path,
    pictures: pl.DataFrame,
    model: Embedder,
    executor: Executor,
    limits: Limits,
    advance: Advance = lambda done, total, errors: None,
) -> Answers:
    """Return the vectors of `pictures` (columns `content_hash`, `id`, `uri`), asking for new ones.

    `advance` gets (done, all, failed). Raises UsageError where the model gives no vector for any
    of the first pictures, MachineError where memory or disk ran out.
    """
    parts = VectorParts(run, model.identity)
    hashes = pictures["content_hash"].to_list()
    vectors, found = parts.load(hashes)
    jobs = [
        SquareJob(content, sample, reading_place(uri))
        for content, sample, uri in pictures.select("content_hash", "id", "uri")
        .filter(pl.Series(~found)).iter_rows()
    ]  # fmt: skip
    asking = _Asking(model, parts, vectors.shape[1])
    advance(len(hashes) - len(jobs), len(hashes), 0)
    chunks = (jobs[i : i + model.batch] for i in range(0, len(jobs), model.batch))
    done = len(hashes) - len(jobs)
    try:
        for chunk, outcome in executor.run(SquareMaker(limits, model.size), chunks):
            squares = [outcome.text] * len(chunk) if isinstance(outcome, Failure) else outcome
            asking.take(chunk, squares)
            done += len(chunk)
            advance(done, len(hashes), len(asking.failures))
    finally:
        asking.flush()
    if jobs:
        vectors, found = parts.load(hashes)
    asking.require_some(any_stored=bool(found.any()))
    return Answers(vectors, found, asking.failures, len(jobs))


@dataclass(slots=True)
class _Asking:
    """The state of a dialogue: vectors that wait to be stored, and what failed."""

    model: Embedder
    parts: VectorParts
    width: int
    failures: dict[str, str] = field(default_factory=dict)
    waiting: dict[str, Floats] = field(default_factory=dict)
    flushed: float = field(default_factory=time.monotonic)
    answered: int = 0
    refused: int = 0

    def take(self, jobs: Sequence[SquareJob], squares: Sequence[Any]) -> None:
        """Ask for the pictures that could be opened; note the others."""
        opened = [(job, x) for job, x in zip(jobs, squares, strict=True) if not isinstance(x, str)]
        for job, said in zip(jobs, squares, strict=True):
            if isinstance(said, str):
                self.failures[job.sample_id] = said
        if not opened:
            return
        answers = self._answers(np.stack([square for _, square in opened]))
        if not self.width:
            widths = Counter(len(x) for x in answers if not isinstance(x, str))
            self.width = widths.most_common(1)[0][0] if widths else 0
        for (job, _), answer in zip(opened, answers, strict=True):
            self._note(job, answer)
        if self.refused >= HOPELESS:
            self.require_some(any_stored=False)
        if len(self.waiting) >= PART_ROWS or time.monotonic() - self.flushed > PART_S:
            self.flush()

    def _answers(self, pictures: npt.NDArray[np.uint8]) -> list[Floats | str]:
        """Return a vector or a sentence for each picture: from one call, or from one each."""
        try:
            with quiet_stdout():
                rows = _as_vectors(self.model.describe(pictures), len(pictures))
            return [_finite(row) for row in rows]
        except Exception as error:
            if len(pictures) == 1:
                if machine := find_machine_error(error):
                    raise machine from error
                return [error_text(error)]
        return [answer for one in pictures for answer in self._answers(one[None])]

    def _note(self, job: SquareJob, answer: Floats | str) -> None:
        if not isinstance(answer, str) and len(answer) != self.width:
            answer = f"its vector has {len(answer):,} numbers, others have {self.width:,}"
        if isinstance(answer, str):
            self.failures[job.sample_id] = answer
            self.refused += 1
        else:
            self.waiting[job.content_hash] = answer
            self.answered += 1

    def flush(self) -> None:
        """Store what waits."""
        if self.waiting:
            self.parts.write(list(self.waiting), np.stack(list(self.waiting.values())))
        self.waiting.clear()
        self.flushed = time.monotonic()

    def require_some(self, *, any_stored: bool) -> None:
        """Raise UsageError where the model refused pictures and gave no vector at all."""
        if self.refused and not self.answered and not any_stored:
            sample, said = next(iter(self.failures.items()))
            raise UsageError(
                f"{self.model.name} gave no vector for any of {self.refused:,} pictures, such as "
                f"{sample} ({said}): mend the model; what was measured is kept."
            )


def _as_vectors(answer: npt.NDArray[Any], n: int) -> Floats:
    """Return (n, d) numbers; raises ValueError for anything else."""
    if n == 1 and answer.ndim == 1:
        answer = answer[None]
    if answer.dtype.kind not in "fiu" or answer.ndim != 2 or len(answer) != n or not answer.size:
        raise ValueError(
            f"the model returned {answer.dtype} of shape {answer.shape} for {n} pictures, not one "
            "vector a picture"
        )
    return answer.astype(np.float32)


def _finite(row: Floats) -> Floats | str:
    if np.isfinite(row).all():
        return row
    return "its vector holds numbers that are none (NaN or infinite)"
