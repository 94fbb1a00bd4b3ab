"""Random trees: whatever the folders are called, no picture is lost and none is counted twice."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from audit.errors import UsageError
from audit.sources import names, open_source
from audit.sources.layout import ROLES, infer_layout
from tests.audit.sources.trees import grow, ids, read

# Words with a meaning, words without, two spellings of one name, a hidden folder.
FOLDERS = st.sampled_from(
    [
        "train", "test", "val", "dev", "validation", "cars_train", "cars_test", "train2017", "eval",
        "images", "JPEGImages", "data", "labels", "masks", "Annotations", "cat", "dog", "100%",
        "raw", "set", ".hidden", "caf\u00e9", "cafe\u0301",
    ]
)  # fmt: skip
FILES = st.sampled_from(
    ["a.png", "b.jpg", "c.PNG", "\u00e9.png", "e\u0301.png", "notes.txt", ".hidden.png", "%.png"]
)
TREES = st.sets(
    st.builds(
        lambda folders, file: "/".join([*folders, file]), st.lists(FOLDERS, max_size=4), FILES
    ),
    min_size=1,
    max_size=12,
)


def meanings(parts: list[str]) -> set[str]:
    """Every split that the folders of a path could stand for."""
    words = [word for part in parts for word in names.words(part)]
    return {*parts, *(names.CANONICAL[word] for word in words if word in names.CANONICAL)}


@pytest.mark.slow
@settings(max_examples=80)
@given(TREES)
def test_every_picture_is_one_sample_or_is_counted(paths: set[str]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        root = grow(Path(folder), *paths)
        assert infer_layout(folder).layout.name in ROLES
        try:
            source = open_source([folder])
        except UsageError:
            # Nothing but text, hidden files and annotations: no picture lies at the root.
            assert not {"a.png", "b.jpg", "c.PNG", "%.png"} & paths
            return
        samples = read(source)
        files = {os.path.relpath(sample.uri, root) for sample in samples}
        assert len(files) == len(samples) == len(set(ids(samples)))
        assert files <= paths
        assert len(paths) - len(files) == sum(row.count for row in source.skipped)
        for sample in samples:
            parts = os.path.relpath(sample.uri, root).split(os.sep)[:-1]
            assert sample.label is None or sample.label in parts
            assert sample.split is None or sample.split in meanings(parts)


@settings(max_examples=40)
@given(TREES, st.sampled_from(sorted(ROLES)))
def test_a_layout_that_is_given_never_fails(paths: set[str], wanted: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        grow(Path(folder), *paths)
        inferred = infer_layout(folder, wanted)
        assert inferred.layout.name == wanted
        assert inferred.roles == ROLES[wanted]
