"""Planted faults and healthy twins for `training/ranks.py`."""

from collections.abc import Callable
from typing import Any

from pipeline_profiler.checks.loop_facts import RankFacts
from tests.pipeline_profiler.checks.examples import FAULT, TWIN, Rows
from tests.pipeline_profiler.checks.toys import loop_seen

SAME, BY_RANK = [("train.py:3", False)], [("train.py:3", False), ("train.py:9", True)]
REDUCED = ["all_reduce"]


def rank_seen(**facts: Any) -> Callable[[], Any]:
    """A toy training of a loop as one of several ranks."""
    return loop_seen(ranks=RankFacts(**facts))


EXAMPLES: Rows = [
    ("TRAIN033", FAULT, "one seed and dropout", rank_seen(seeded=SAME, drawn=True)),
    ("TRAIN033", FAULT, "model.module is called", rank_seen(bypassed="train.py:7")),
    ("TRAIN033", FAULT, "weights of their own", rank_seen(collectives=REDUCED)),
    ("TRAIN033", FAULT, "weights by rank", rank_seen(collectives=REDUCED, seeded=BY_RANK)),
    ("TRAIN033", TWIN, "a seed by rank", rank_seen(seeded=BY_RANK, drawn=True)),
    ("TRAIN033", TWIN, "no seed", rank_seen(wrapped=True, drawn=True)),
    ("TRAIN033", TWIN, "one seed, no noise", rank_seen(seeded=SAME)),
    ("TRAIN033", TWIN, "averaged by hand", rank_seen(collectives=[*REDUCED, "broadcast"])),
    ("TRAIN033", TWIN, "one process", loop_seen()),
    ("TRAIN035", FAULT, "each rank saves", rank_seen(written=[("train.py:9", "a.pt", False)])),
    ("TRAIN035", TWIN, "rank 0 saves", rank_seen(written=[("train.py:9", "a.pt", True)])),
    ("TRAIN035", TWIN, "none saves", rank_seen()),
]
