"""Descriptions of signatures in five orientations."""

from __future__ import annotations

import numpy as np
import pytest

from audit.embeddings.orientation_views import NEGATIVE, ORIENTATIONS, describe, reorient
from audit.picture.signatures import make_signature
from tests.conftest import picture


@pytest.fixture
def table() -> np.ndarray:
    return np.stack([make_signature(picture(seed, 64, 64)) for seed in range(3)])


def test_a_rotated_signature_is_described_as_its_rotated_image(table: np.ndarray) -> None:
    described = describe(table)
    assert described.shape == (len(ORIENTATIONS), 3, 128)
    for k in range(4):
        rotated = describe(reorient(table, ORIENTATIONS[k]))[0]
        assert np.allclose(rotated, described[k])
    assert not np.allclose(described[0], described[1], atol=0.1)


def test_the_negative_of_a_negative_is_the_image(table: np.ndarray) -> None:
    again = reorient(reorient(table, NEGATIVE), NEGATIVE)
    assert (again["grey"] == table["grey"]).all()
