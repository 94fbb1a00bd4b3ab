"""Built-in vectors: the same for a mirror image, the same every time, near for what looks alike."""

from __future__ import annotations

import numpy as np
import pytest

from audit.embeddings import patches
from audit.embeddings.patches import (
    VIEWS,
    colour_pictures,
    describe_patches,
    encode,
    learn_dictionary,
)
from audit.picture.signatures import make_signature, stack_signatures
from tests.conftest import picture


def table(n: int) -> np.ndarray:
    return stack_signatures([make_signature(picture(seed)) for seed in range(n)])


def test_a_mirror_image_has_the_same_code() -> None:
    some = table(12)
    words, pictures = learn_dictionary(some), colour_pictures(some)
    turned = np.ascontiguousarray(pictures[:, :, ::-1])
    np.testing.assert_allclose(encode(pictures, words), encode(turned, words), atol=2e-3)


def test_equal_signatures_give_equal_vectors() -> None:
    some = table(12)
    np.testing.assert_array_equal(describe_patches(some), describe_patches(some.copy()))


def test_few_pictures_are_seen_in_all_views() -> None:
    vectors = describe_patches(table(5))
    assert vectors.shape[:2] == (len(VIEWS), 5)
    assert np.isfinite(vectors).all()


def test_none_and_one_picture() -> None:
    assert describe_patches(table(1)[:0]).shape == (1, 0, 0)
    assert np.isfinite(describe_patches(table(1))).all()


def test_of_many_pictures_the_main_axes_say_nearly_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rows = table(150)
    monkeypatch.setattr(patches, "ENCODED", 0)  # one view, as of many
    whole = describe_patches(rows)[0]
    monkeypatch.setattr(patches, "LEAST_AXES", 100)
    monkeypatch.setattr(patches, "MOST_NUMBERS", 120 * 150)
    main = describe_patches(rows)[0]
    assert main.shape == (150, 120)
    monkeypatch.setattr(patches, "MOST_NUMBERS", 50 * 150)
    assert describe_patches(rows)[0].shape == (150, 100), "never fewer than the least"
    assert np.abs(main.mean(0)).max() < 1e-3
    # 120 of the at most 149 axes that 150 pictures have
    assert np.allclose((main**2).sum(), (whole**2).sum(), rtol=0.1)
    assert np.corrcoef((whole @ whole.T).ravel(), (main @ main.T).ravel())[0, 1] > 0.99
