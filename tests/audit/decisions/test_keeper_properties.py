"""Whatever the rule, and in whatever order rules are applied, no picture loses its last copy."""

from __future__ import annotations

import random
import shutil
import tempfile
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from audit.decisions import keeper_rules
from audit.decisions.decisions import decide_samples
from audit.decisions.waivers import apply_decisions
from audit.records import Action
from tests.audit.reviewed import made_hash, made_run

pytestmark = pytest.mark.slow

SPLITS = ("train", "val", "test")
PICTURES = 40
STEPS = st.tuples(
    st.sampled_from(keeper_rules.CODES),
    st.sampled_from(["largest", "sharpest", "least-compressed", *(f"split:{s}" for s in SPLITS)]),
    st.lists(st.sampled_from(SPLITS), unique=True),
)


def copies() -> list[dict[str, Any]]:
    """Files of 40 pictures, 1 to 5 each: the same bytes, the same pixels, or another size."""
    draw, rows = random.Random(7), []
    for picture in range(PICTURES):
        label = draw.choice(["cat", "dog", None])
        grouped: set[str] = set()  # a group of near-duplicates names each distinct picture once
        for copy in range(draw.randint(1, 5)):
            kind = draw.choice(["bytes", "pixels", "near"])
            own = 1000 * (picture + 1) + copy
            pixels = made_hash(own if kind == "near" else picture, 32)
            near = {} if pixels in grouped else {"near": str(picture)}
            grouped.add(pixels)
            rows.append({
                "id": f"{picture}-{copy}.jpg", "pixel_hash": pixels, **near,
                "content_hash": made_hash(picture if kind == "bytes" else own, 64),
                "split": draw.choice(SPLITS), "width": draw.choice([320, 640]),
                "label": draw.choice(["cat", "dog"]) if draw.random() < 0.1 else label,
                "sharpness": draw.random(), "status": draw.choice(["ok", "ok", "damaged"]),
                "jpeg_quality": draw.choice([70, 95, None]),
            })  # fmt: skip
    return rows


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of such copies, some kept, moved or dropped by hand; not to be changed."""
    rows = copies()
    run = made_run(tmp_path_factory.mktemp("copies") / "run", rows, ["DUP", "SPLIT001"])
    ids = [str(row["id"]) for row in rows]
    decide_samples(run, ids[::7], Action.KEEP)
    decide_samples(run, ids[3::11], Action.MOVE, "val")
    decide_samples(run, [i for i in ids[5::13] if not i.endswith("-0.jpg")], Action.DROP)
    return run


def left_copies(run: Path) -> dict[str, int]:
    """The files that are not dropped, by picture."""
    dropped = set(apply_decisions(run).effective.filter("dropped")["id"])
    left = [str(row["id"]).split("-")[0] for row in copies() if row["id"] not in dropped]
    return {str(picture): left.count(str(picture)) for picture in range(PICTURES)}


@given(step=STEPS)
@settings(max_examples=20)
def test_no_proposal_drops_the_last_copy_of_a_group(
    run: Path, step: tuple[str, str, list[str]]
) -> None:
    code, rule, splits = step
    proposal = keeper_rules.propose(run, code, rule, None, splits)
    drops = proposal.filter(~pl.col("keep"))
    whole = proposal.group_by("group").agg((~pl.col("keep")).fill_null(False).all().alias("gone"))
    assert not whole["gone"].any()
    assert not set(drops["keeper"]) & set(drops["sample_id"]), "a keeper is dropped itself"


@given(steps=st.lists(STEPS, min_size=1, max_size=3))
@settings(max_examples=8)
def test_no_order_of_rules_drops_the_last_copy_of_a_picture(
    run: Path, steps: list[tuple[str, str, list[str]]]
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        mine = Path(shutil.copytree(run, Path(folder) / "run"))
        before = left_copies(mine)
        for code, rule, splits in steps:
            keeper_rules.apply_rule(mine, keeper_rules.propose(mine, code, rule, None, splits))
        after = left_copies(mine)
    assert all(after[picture] for picture, n in before.items() if n)
