"""LOAD018: classes that have another number in evaluation than in training."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from pipeline_profiler.checking.check import Answer, Check, Example, passed, unclear, wrong
from pipeline_profiler.checking.file_transforms import dataset_layers
from pipeline_profiler.checking.loader_subject import LoaderSubject
from pipeline_profiler.checking.toys import ToyImages, toy_loader

LISTS = ("classes", "class_names", "label_names")
MOST_SHOWN = 5


class LabelNumbers(Check):
    """Training and evaluation that give one class different numbers.

    ## What it does
    Reads which number each class name has in the datasets of both loaders: `class_to_idx`,
    `label2id` or `id2label`, lists of names (`classes`, `class_names`, `label_names`), `features`
    of Hugging Face, also inside `Subset` and the like.

    ## Why is this bad
    Folders are numbered by the alphabet: where one class is missing, all after it move by one. The
    model is right, and the evaluation calls it wrong.

    ## How it decides
    Fails where a name that both have stands for different numbers. Exact. A class that only one of
    them has is no failure; without a common name, or where a `target_transform` numbers anew, it
    cannot tell.

    ## What to do
    Take the numbers of the training set: pass its `class_to_idx`, or map names to numbers in one
    table for both.

    ## Limits
    Names must be kept by the dataset. Names that stand for several numbers are left out.
    """

    code = "LOAD018"
    name = "labels-numbered-apart"

    def run(self, subject: LoaderSubject) -> Answer:
        """Compare the tables of both datasets."""
        if subject.make_eval is None:
            return unclear(
                "There is no loader for evaluation to compare with.",
                "Give it: --eval train.py:make_eval_loader.",
            )
        sets = [getattr(x, "dataset", x) for x in (subject.loader, subject.eval_loader)]
        ours, theirs = (_numbers_of(dataset) for dataset in sets)
        if not ours or not theirs:
            return unclear("The datasets keep no names of classes, so numbers cannot be compared.")
        shared = [name for name in ours if name in theirs]
        numbers: dict[str, Any] = {
            "train": len(ours), "evaluation": len(theirs), "shared": len(shared),
        }  # fmt: skip
        if not shared:
            return unclear("The two datasets have no name of a class in common.", "", **numbers)
        apart = [(name, ours[name], theirs[name]) for name in shared if ours[name] != theirs[name]]
        if not apart:
            return passed(
                f"{len(shared)} names of classes have one number in training and evaluation.",
                **numbers,
            )
        numbers["apart"] = apart
        said = ", ".join(f"{name}: {a} and {b}" for name, a, b in apart[:MOST_SHOWN])
        more = f" and {len(apart) - MOST_SHOWN} more" if len(apart) > MOST_SHOWN else ""
        text = (
            f"{len(apart)} of {len(shared)} classes have another number in training than in "
            f"evaluation ({said}{more})"
        )
        if any(_renumbers(dataset) for dataset in sets):
            return unclear(f"{text}; a target_transform may number them anew.", "", **numbers)
        return wrong(
            f"{text}.",
            [
                "a folder of a class is missing in one of them, and the rest moved up",
                "names are sorted differently, or come from a set",
                "two tables of labels",
            ],
            "Number both by the table of the training set.",
            **numbers,
        )

    @staticmethod
    def _pair(ours: Any, theirs: Any, **more: Any) -> LoaderSubject:
        made = [ToyImages(), ToyImages(seed=1)]
        for dataset, names in zip(made, (ours, theirs), strict=True):
            key = "class_to_idx" if isinstance(names, dict) else "classes"
            vars(dataset)[key] = names
        vars(made[1]).update(more)
        return LoaderSubject(lambda: toy_loader(made[0]), lambda: toy_loader(made[1]))

    PLANTED = (
        Example(
            "a folder is missing",
            lambda: LabelNumbers._pair({"ant": 0, "bee": 1, "cat": 2}, {"ant": 0, "cat": 1}),
        ),
        Example("another order", lambda: LabelNumbers._pair(["cat", "dog"], ["dog", "cat"])),
    )
    HEALTHY = (
        Example("one table", lambda: LabelNumbers._pair(["cat", "dog"], {"cat": 0, "dog": 1})),
        Example(
            "the last class has no example", lambda: LabelNumbers._pair(["ant", "bee"], ["ant"])
        ),
        Example("other names", lambda: LabelNumbers._pair(["n01", "n02"], ["cat", "dog"])),
        Example(
            "numbered anew by a transform",
            lambda: LabelNumbers._pair(["a", "b"], ["b", "a"], target_transform=lambda t: 1 - t),
        ),
        Example(
            "a name for each sample, not for each class",
            lambda: LabelNumbers._pair(*([f"{n * f % 257}" for n in range(256)] for f in (1, 2))),
        ),
        Example("no names", lambda: LoaderSubject(_plain, _plain)),
    )


def _plain() -> Any:
    return toy_loader(ToyImages())


def _renumbers(dataset: Any) -> bool:
    return any(getattr(x, "target_transform", None) is not None for x in dataset_layers(dataset))


def _numbers_of(dataset: Any) -> dict[str, int]:
    """Number by name, of the outermost dataset that has names; empty where none has."""
    for layer in dataset_layers(dataset):
        pairs = _pairs_of(layer)
        often = Counter(name for name, _ in pairs)
        if pairs:
            return {name: number for name, number in pairs if often[name] == 1}
    return {}


def _pairs_of(layer: Any) -> list[tuple[str, int]]:
    for key in ("class_to_idx", "label2id"):
        if isinstance(table := getattr(layer, key, None), Mapping):
            return _whole([(name, number) for name, number in table.items()])
    if isinstance(table := getattr(layer, "id2label", None), Mapping):
        return _whole([(name, number) for number, name in table.items()])
    features = getattr(layer, "features", None)
    for key in ("label", "labels", "fine_label"):
        part = features.get(key) if isinstance(features, Mapping) else None
        if names := getattr(part, "names", None):
            return [(str(name), number) for number, name in enumerate(names)]
    for key in LISTS:
        names = getattr(layer, key, None)
        if not isinstance(names, list | tuple) or not all(isinstance(n, str) for n in names):
            continue
        if len(names) != len(layer):  # else it is a name for each sample
            return [(name, number) for number, name in enumerate(names)]
    return []


def _whole(pairs: list[tuple[Any, Any]]) -> list[tuple[str, int]]:
    try:
        return [(str(name), int(number)) for name, number in pairs]
    except (TypeError, ValueError):
        return []
