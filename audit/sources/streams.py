"""Datasets that are streams: what is taken of them, and what a report says of a loader's epoch.

A loader gives what comes after augmentation, in the order of its sampler. The number of a picture
is therefore an index in the dataset only where the sampler goes through it in order. What raises
half way gives nothing more, unlike a dataset whose items are asked one by one. Cost: one pass.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from audit.errors import UsageError


def is_loader(part: Any) -> bool:
    """Whether a part is a torch DataLoader, or does all that is asked of one here."""
    names = ("dataset", "collate_fn", "sampler", "batch_sampler")
    return all(hasattr(part, name) for name in names)


def count_items(part: Any) -> int:
    """Return how many items a part has, 0 where it does not tell."""
    try:
        return len(part.dataset if is_loader(part) else part)  # a loader's length is in batches
    except TypeError:
        return 0


def take_all(part: Any) -> Iterator[Any]:
    """Yield what a stream gives; where it raises, nothing more can come of it."""
    iterator, n = iter(part), 0
    while True:
        try:
            item = next(iterator)
        except StopIteration:
            return
        except (MemoryError, UsageError):
            raise
        except Exception as error:
            last = str(error).strip().splitlines()[-1:] or [""]
            raise UsageError(
                f"The {type(part).__name__} raised {type(error).__name__} after {n:,} batches or "
                f"items ({last[0][:200]}): mend it, or give the dataset behind it, of which each "
                "item is asked alone."
            ) from error
        n += 1
        yield item


def describe_epochs(dataset: Any, manifest: Path) -> list[str]:
    """Return a sentence for each loader among the parts of a stored dataset: what came of it."""
    import polars as pl

    parts = dataset.items() if isinstance(dataset, Mapping) else [(None, dataset)]
    table = pl.read_parquet(manifest)
    sentences = []
    for split, part in parts:
        if is_loader(part):
            rows = table if split is None else table.filter(pl.col("split") == split)
            sentences.append(_epoch_sentence(part, split, len(rows)))
    return sentences


def _epoch_sentence(loader: Any, split: str | None, n: int) -> str:
    where = "" if split is None else f" of {split}"
    of = count_items(loader)
    came = f"{n:,} of the {of:,} items of its dataset" if of else f"{n:,} items"
    # A batch sampler of one's own leaves a default `sampler` beside it, which is not used.
    in_order = (
        type(loader.sampler).__name__ == "SequentialSampler"
        and type(loader.batch_sampler).__name__ == "BatchSampler"
    )
    number = (
        "its sampler is sequential, so the number of a picture is its index in the dataset"
        if in_order
        else "its sampler does not tell the order, so the number of a picture is its place in that "
        "epoch, which is no index in the dataset and changes from epoch to epoch"
    )
    return (
        f"The pictures{where} are one epoch of a loader, as they came after its transforms: "
        f"{came}; {number}."
    )
