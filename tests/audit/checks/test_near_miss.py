"""LABEL002's two halves: what folds to one name, and what a slip of the keys explains."""

from __future__ import annotations

import itertools
import string

import numpy as np
import pytest

from audit.checks.label_near_miss import (
    NearMissClassName,
    Spelling,
    damerau_levenshtein,
    fold_name,
    is_typing_error,
    typing_errors,
)

SPELLINGS_OF_ONE_NAME = (
    ("Cat", "cat"), ("cat", "cats"), ("polar bear", "polar_bear"), ("polar-bear", "PolarBear"),
    ("berry", "berries"), ("box", "boxes"), ("glass", "glasses"), ("bench", "benches"),
    ("caf\u00e9", "cafe\u0301"), ("caf\u00e9", "cafe"), ("ｃａｔ", "cat"), ("c\u0430t", "cat"),
    ("dog (1)", "dog"), ("dog copy", "dog"), (" dog ", "dog"), ("1", "01"), ("1", "1.0"),
    ("Straße", "strasse"), ("bus", "buses"),
)  # fmt: skip
DIFFERENT_NAMES = (
    ("car", "cat"), ("class1", "class2"), ("0", "1"), ("1", "10"), ("1_0", "10"), ("1-1", "11"),
    ("a", "A"), ("bus", "bu"), ("glass", "glas"), ("n01440764", "n01440765"), ("кот", "kot"),
    ("3.5", "35"), ("dog (1)", "dog 1"),
)  # fmt: skip
SLIPS = (
    ("bridgee", "bridge"), ("brigde", "bridge"), ("elephnat", "elephant"), ("girafe", "giraffe"),
    ("restaraunt", "restaurant"), ("motorcylce", "motorcycle"), ("aeroplone", "aeroplane"),
    ("helicoptr", "helicopter"), ("teddyy", "teddy"),
)  # fmt: skip
NO_SLIPS = (
    ("car", "cat"), ("house", "mouse"), ("house", "horse"), ("truck", "trunk"), ("plane", "plate"),
    ("class1", "class2"), ("class1", "class"), ("n01440764", "n01440765"), ("chair", "hair"),
    ("motorcycle", "motorway"), ("strawberry", "blueberry"),
)  # fmt: skip


@pytest.mark.parametrize(("one", "other"), SPELLINGS_OF_ONE_NAME + DIFFERENT_NAMES)
def test_spellings_of_one_name_fold_to_one(one: str, other: str):
    assert (fold_name(one) == fold_name(other)) == ((one, other) in SPELLINGS_OF_ONE_NAME)


@pytest.mark.parametrize(("one", "other"), SLIPS + NO_SLIPS)
def test_a_slip_is_one_in_both_directions(one: str, other: str):
    slip = (one, other) in SLIPS
    assert is_typing_error(one, other) == is_typing_error(other, one) == slip


def test_the_index_misses_no_pair_that_all_pairs_would_find():
    rng = np.random.default_rng(1)
    names = ["".join(rng.choice(list("abcdef"), rng.integers(5, 13))) for _ in range(60)]
    for name in names[:40]:
        letters = list(name)
        for _ in range(rng.integers(1, 3)):
            at = int(rng.integers(1, len(letters)))
            edit = int(rng.integers(0, 4))
            letter = str(rng.choice(list(string.ascii_lowercase)))
            letters = (
                [*letters[:at], letter, *letters[at:]] if edit == 0
                else [*letters[:at], *letters[at + 1 :]] if edit == 1
                else [*letters[:at], letter, *letters[at + 1 :]] if edit == 2
                else [*letters[: at - 1], letters[at], letters[at - 1], *letters[at + 1 :]]
            )  # fmt: skip
        names.append("".join(letters))
    names = sorted(set(names))
    counts = {name: 1 if i % 2 else 100 for i, name in enumerate(names)}
    params = NearMissClassName.Params()
    wanted = {
        rare
        for rare, common in itertools.product(names, names)
        if counts[rare] == 1 and counts[common] == 100 and is_typing_error(rare, common)
    }
    by_key = {name: [Spelling(name, counts[name])] for name in names}
    found = {pair[1].name for pair in typing_errors(by_key, params)}
    assert len(wanted) > 5
    assert found == wanted


def test_the_distance_is_that_of_the_definition():
    assert damerau_levenshtein("", "abc") == 3
    assert damerau_levenshtein("ab", "ba") == 1
    assert damerau_levenshtein("abc", "abc") == 0
    assert damerau_levenshtein("kitten", "sitting") == 3
