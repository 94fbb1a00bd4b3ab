"""Planted faults and healthy twins for `training/ranks.py`."""

import os
import tempfile
from pathlib import Path
from typing import Any

from pipeline_profiler.checks.lazy import dist, nn, torch
from tests.pipeline_profiler.checks.examples import FAULT, TWIN, Rows
from tests.pipeline_profiler.checks.rank_toys import ranked_training
from tests.pipeline_profiler.checks.toys import toy_step


class RankSeedsMade:
    @staticmethod
    def _dropout(seed: int) -> Any:
        torch.manual_seed(seed)
        return ranked_training(nn.Dropout(0.3))

    @staticmethod
    def _one_seed() -> Any:
        assert "RANK" in os.environ
        return RankSeedsMade._dropout(0)

    @staticmethod
    def _own_seed() -> Any:
        return RankSeedsMade._dropout(int(os.environ["RANK"]))

    @staticmethod
    def _bypassed() -> Any:
        """A step past DistributedDataParallel."""

        def train_step(model: Any, batch: Any, loss: Any, optimizer: Any) -> Any:
            return toy_step(model.module, batch, loss, optimizer)

        return ranked_training(train_step=train_step)

    @staticmethod
    def _averaged(broadcast: bool = False) -> Any:
        """Gradients averaged by hand; `broadcast`: all have the weights of rank 0."""
        if not dist.is_initialized():
            dist.init_process_group("gloo")

        def train_step(model: Any, x: Any, y: Any, loss: Any, optimizer: Any) -> Any:
            optimizer.zero_grad()
            value = loss(model(x), y)
            value.backward()
            for p in model.parameters():
                dist.all_reduce(p.grad)
                p.grad /= dist.get_world_size()
            optimizer.step()
            return value

        training = ranked_training(wrap=False, train_step=train_step)
        for p in training.model.parameters() if broadcast else ():
            dist.broadcast(p.data, 0)
        return training

    @staticmethod
    def _broadcast() -> Any:
        assert os.environ["WORLD_SIZE"] == "2"
        return RankSeedsMade._averaged(broadcast=True)

    @staticmethod
    def _wrapped_where_open() -> Any:
        """As files do that `torchrun` starts, and that also run alone."""
        assert "RANK" in os.environ
        torch.manual_seed(int(os.environ["RANK"]))
        return ranked_training(nn.Dropout(0.3), wrap=dist.is_initialized())


class RankStatisticsMade:
    @staticmethod
    def _evaluating(averaged: bool, synchronised: bool = False) -> Any:
        def evaluate(model: Any, loader: Any) -> float:
            for name, value in model.named_buffers() if averaged else ():
                if "running" in name:
                    dist.all_reduce(value)
                    value /= dist.get_world_size()
            model.eval()
            with torch.no_grad():
                hits = [(model(x).argmax(1) == y).float() for x, y in loader]
            model.train()
            return float(torch.cat(hits).mean())

        return ranked_training(evaluate=evaluate, synchronised=synchronised)

    @staticmethod
    def _rank_by_rank() -> Any:
        """DistributedDataParallel, nothing averaged."""
        return RankStatisticsMade._evaluating(False)

    @staticmethod
    def _averaged() -> Any:
        """DistributedDataParallel, statistics averaged."""
        return RankStatisticsMade._evaluating(True)

    @staticmethod
    def _synchronised() -> Any:
        """DistributedDataParallel with SyncBatchNorm, nothing averaged."""
        return RankStatisticsMade._evaluating(False, synchronised=True)


class RankWritesMade:
    @staticmethod
    def _saving(only: bool) -> Any:
        file = Path(tempfile.gettempdir()) / "weights.pt"  # never written: torch.save is watched

        def train_step(model: Any, batch: Any, loss: Any, optimizer: Any) -> Any:
            value = toy_step(model, batch, loss, optimizer)
            if not only or os.environ["RANK"] == "0":
                torch.save(model.state_dict(), file)
            return value

        return ranked_training(train_step=train_step)

    @staticmethod
    def _all() -> Any:
        """Every rank of WORLD_SIZE saves."""
        return RankWritesMade._saving(only=False)

    @staticmethod
    def _first() -> Any:
        """One rank of WORLD_SIZE saves."""
        return RankWritesMade._saving(only=True)


EXAMPLES: Rows = [
    ("TRAIN033", FAULT, "one seed and dropout", RankSeedsMade._one_seed),
    ("TRAIN033", FAULT, "model.module is called", RankSeedsMade._bypassed),
    ("TRAIN033", FAULT, "weights of their own", RankSeedsMade._averaged),
    ("TRAIN033", TWIN, "a seed by rank", RankSeedsMade._own_seed),
    ("TRAIN033", TWIN, "wrapped where a group is open", RankSeedsMade._wrapped_where_open),
    ("TRAIN033", TWIN, "averaged by hand", RankSeedsMade._broadcast),
    ("TRAIN034", FAULT, "statistics of rank 0", RankStatisticsMade._rank_by_rank),
    ("TRAIN034", TWIN, "averaged over the ranks", RankStatisticsMade._averaged),
    ("TRAIN034", TWIN, "SyncBatchNorm", RankStatisticsMade._synchronised),
    ("TRAIN035", FAULT, "each rank saves", RankWritesMade._all),
    ("TRAIN035", TWIN, "rank 0 saves", RankWritesMade._first),
]
