"""TRAIN035: logs and checkpoints that every rank writes."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any

from pipeline_profiler.checking.check import Answer, Check, Example, passed, unclear, wrong
from pipeline_profiler.checking.rank_toys import ranked_training
from pipeline_profiler.checking.toy_trainings import toy_training
from pipeline_profiler.checking.training_subject import TrainingSubject
from pipeline_profiler.record.errors import ProfileError


class RankWrites(Check):
    """One file that several ranks write: a log, a table of metrics, a checkpoint.

    ## What it does
    Lets two ranks make three steps and call your evaluate, and notes which files each opens to be
    written or hands to torch.save. They are written into a scratch folder, which is removed.

    ## Why is this bad
    Ranks that write one file overwrite each other: a checkpoint of two halves cannot be loaded,
    and a log has each line as often as there are ranks.

    ## How it decides
    Fails where both ranks write the same path. Files of one rank alone, and files by rank, pass.

    ## What to do
    Write where `rank == 0` only, and let the others wait (`dist.barrier()`); or put the rank into
    the name of the file.

    ## Limits
    What your functions write within three steps and one evaluation: a checkpoint that the loop
    writes outside of them is not seen. Files written by compiled code are not seen.
    """

    code = "TRAIN035"
    name = "rank-writes"

    def run(self, subject: TrainingSubject) -> Answer:
        """Compare the files of both ranks."""
        found = subject.ranks
        if isinstance(found, ProfileError):
            raise found
        one, two = (set(rank.written) for rank in found)
        if not one | two:
            return unclear("Nothing is written in three steps and one evaluation.")
        both = sorted(one & two)
        if not both:
            return passed(
                f"Rank 0 writes {len(one)} files and rank 1 {len(two)}, none of them the same."
            )
        names = ", ".join(Path(path).name for path in both[:3])
        return wrong(
            f"Two ranks write the same {len(both)} files: {names}.",
            ["the log or the checkpoint is written by all ranks, and not by rank 0 alone"],
            "Write where rank == 0, or put the rank into the name.",
            files=both[:20],
        )

    @staticmethod
    def _saving(only: bool) -> Any:
        import torch

        file = Path(tempfile.gettempdir()) / "weights.pt"  # never written: torch.save is watched

        def train_step(model: Any, x: Any, y: Any, loss: Any, optimizer: Any) -> Any:
            optimizer.zero_grad()
            value = loss(model(x), y)
            value.backward()
            optimizer.step()
            if not only or os.environ["RANK"] == "0":
                torch.save(model.state_dict(), file)
            return value

        return ranked_training(train_step=train_step)

    @staticmethod
    def _all() -> Any:
        """Every rank of WORLD_SIZE saves."""
        return RankWrites._saving(only=False)

    @staticmethod
    def _first() -> Any:
        """One rank of WORLD_SIZE saves."""
        return RankWrites._saving(only=True)

    PLANTED = (Example("each rank saves", _all),)
    HEALTHY = (
        Example("rank 0 saves", _first),
        Example("one process", toy_training),
    )
