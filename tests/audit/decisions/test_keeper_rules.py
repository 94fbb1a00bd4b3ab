"""Keeper rules: which copy stays, why, and what no rule may settle by itself."""

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
from audit.decisions.decisions import decide_findings, decide_samples
from audit.decisions.store import DecisionStore
from audit.decisions.waivers import apply_decisions
from audit.errors import UsageError
from audit.records import Action
from tests.audit.reviewed import findings, made_hash, made_run, statuses

pytestmark = pytest.mark.slow

BYTES = {"content_hash": "e" * 64, "pixel_hash": "e" * 32}


def near(name: str, group: str = "g", **columns: Any) -> dict[str, Any]:
    return {"id": f"{name}.jpg", "near": group, **columns}


def kept(proposal: pl.DataFrame) -> dict[str, bool | None]:
    return {i.removesuffix(".jpg"): keep for i, keep in proposal.select("sample_id", "keep").rows()}


def why(proposal: pl.DataFrame, name: str) -> str:
    return str(proposal.filter(pl.col("sample_id") == f"{name}.jpg")["why"].item())


@pytest.mark.parametrize(
    ("rule", "stays"),
    [
        ("largest", "big"),
        ("keep-largest", "big"),
        ("sharpest", "sharp"),
        ("least-compressed", "fine"),
        ("split:train", "big"),
    ],
)
def test_each_rule_keeps_the_best_of_its_kind(rule: str, stays: str, tmp_path: Path) -> None:
    group = [
        near("big", width=800, sharpness=0.3, jpeg_quality=70),
        near("sharp", sharpness=0.6, jpeg_quality=70),
        near("fine", sharpness=0.3, jpeg_quality=95),
    ]
    run = made_run(tmp_path / "run", group)
    proposal = keeper_rules.propose(run, "DUP003", rule)
    assert [name for name, keep in kept(proposal).items() if keep] == [stays]
    assert sorted(kept(proposal)) == ["big", "fine", "sharp"]
    dropped = next(name for name, keep in kept(proposal).items() if not keep)
    assert f"DUP003: {stays}.jpg stays" in why(proposal, dropped)
    assert DecisionStore(run).log() == [], "a proposal records nothing"


def test_the_reason_holds_the_figures_that_decided(tmp_path: Path) -> None:
    run = made_run(tmp_path / "run", [near("a", width=800), near("b", n_bytes=7)])
    proposal = keeper_rules.propose(run)
    assert why(proposal, "a") == "largest of 2 copies: 800 x 480 px, 60000 bytes"
    assert why(proposal, "b") == (
        "DUP003: a.jpg stays, the largest of 2 copies (800 x 480 px, 60000 bytes; this one "
        "640 x 480 px, 7 bytes)"
    )


def test_a_lossless_file_is_compressed_least_and_bits_decide_among_others(tmp_path: Path) -> None:
    group = [
        near("a", jpeg_quality=99),
        near("b", format="PNG", jpeg_quality=None),
        near("c", "h", format="WEBP", jpeg_quality=None, n_bytes=9_000),
        near("d", "h", format="WEBP", jpeg_quality=None, n_bytes=90_000),
    ]
    proposal = keeper_rules.propose(made_run(tmp_path / "run", group), "DUP003", "least-compressed")
    assert kept(proposal) == {"b": True, "a": False, "d": True, "c": False}
    assert "PNG, lossless; this one JPEG of quality 99" in why(proposal, "a")
    assert "WEBP at 2.34 bits a pixel" in why(proposal, "d")


def test_sound_before_damaged_and_labelled_before_unlabelled(tmp_path: Path) -> None:
    group = [
        near("damaged", width=900, status="damaged"),
        near("plain"),
        near("unlabelled", "h", width=900, label=None),
        near("labelled", "h"),
    ]
    proposal = keeper_rules.propose(made_run(tmp_path / "run", group))
    assert kept(proposal) == {
        "plain": True, "damaged": False, "labelled": True, "unlabelled": False,
    }  # fmt: skip


def test_equal_copies_are_settled_by_name(tmp_path: Path) -> None:
    images = [{"id": f"{name}.jpg", **BYTES} for name in "cab"]
    proposal = keeper_rules.propose(made_run(tmp_path / "run", images), "DUP001")
    assert kept(proposal) == {"a": True, "b": False, "c": False}


def test_differing_labels_are_left_open_until_relabelled(tmp_path: Path) -> None:
    run = made_run(tmp_path / "run", [near("a", label="dog", width=800), near("b", label="cat")])
    proposal = keeper_rules.propose(run)
    assert kept(proposal) == {"a": None, "b": None}
    assert why(proposal, "a") == "labels differ: relabel first"
    assert keeper_rules.apply_rule(run, proposal) == []
    decide_samples(run, ["a.jpg"], Action.RELABEL, "cat")
    assert kept(keeper_rules.propose(run)) == {"a": True, "b": False}


# ---- across splits ----


def across(tmp_path: Path, *splits: str) -> Path:
    """A run with one picture, the same bytes, in each of these splits: 0.jpg, 1.jpg, ..."""
    images = [{"split": split, "n_bytes": 60_000 - n, **BYTES} for n, split in enumerate(splits)]
    return made_run(tmp_path / "run", images)


@pytest.mark.parametrize("code", ["DUP001", "SPLIT001"])
@pytest.mark.parametrize("rule", ["largest", "sharpest", "least-compressed"])
def test_no_rule_chooses_between_splits_unasked(code: str, rule: str, tmp_path: Path) -> None:
    run = across(tmp_path, "train", "test", "test")
    proposal = keeper_rules.propose(run, code, rule)
    assert proposal["keep"].null_count() == 3
    assert why(proposal, "0") == keeper_rules.SPLIT_NEEDED
    assert keeper_rules.summarise(proposal).open == {why(proposal, "0"): 1}


def test_a_named_split_is_dropped_from_and_the_other_keeps_every_copy(tmp_path: Path) -> None:
    run = across(tmp_path, "train", "train", "test", "test")
    proposal = keeper_rules.propose(run, "SPLIT001", drop_from_splits=["train"])
    assert kept(proposal) == {"2": True, "3": True, "0": False, "1": False}
    assert why(proposal, "0") == "SPLIT001: 2.jpg in test stays, copies in train are dropped"
    assert keeper_rules.summarise(proposal).drops == {"train": 2}
    keeper_rules.apply_rule(run, proposal)
    both = (*findings(run, "SPLIT001"), *findings(run, "DUP001"))
    assert statuses(run, *both) == ["decided", "open"], "two copies are left in test"
    rest = keeper_rules.propose(run, "DUP001")
    assert kept(rest) == {"2": True, "3": False}, "an ordinary group of one split now"


def test_splits_are_dropped_from_in_order_until_one_is_left(tmp_path: Path) -> None:
    run = across(tmp_path, "train", "val", "test")
    proposal = keeper_rules.propose(run, "SPLIT001", drop_from_splits=["train"])
    assert kept(proposal) == {"0": False, "1": None, "2": None}
    proposal = keeper_rules.propose(run, "SPLIT001", drop_from_splits=["train", "val"])
    assert kept(proposal) == {"0": False, "1": False, "2": True}
    proposal = keeper_rules.propose(run, "SPLIT001", drop_from_splits=["train", "val", "test"])
    assert kept(proposal) == {"0": False, "1": False, "2": True}, "the last one stays"


def test_a_named_split_takes_from_training_only(tmp_path: Path) -> None:
    run = across(tmp_path, "train", "test")
    assert kept(keeper_rules.propose(run, "SPLIT001", "split:test")) == {"1": True, "0": False}
    assert kept(keeper_rules.propose(run, "SPLIT001", "split:train")) == {"0": None, "1": None}
    shrunk = keeper_rules.propose(run, "SPLIT001", "split:train", drop_from_splits=["test"])
    assert kept(shrunk) == {"0": True, "1": False}, "asked for"


def test_a_rule_for_a_split_leaves_groups_elsewhere_alone(tmp_path: Path) -> None:
    run = made_run(tmp_path / "run", [near("a"), near("b"), {"split": "test"}])
    proposal = keeper_rules.propose(run, "DUP003", "split:test")
    assert kept(proposal) == {"a": None, "b": None}
    assert why(proposal, "a") == "no copy lies in test"


def test_a_decided_move_counts_as_the_split(tmp_path: Path) -> None:
    run = across(tmp_path, "train", "test")
    decide_samples(run, ["1.jpg"], Action.MOVE, "train")
    assert kept(keeper_rules.propose(run, "DUP001")) == {"0": True, "1": False}


# ---- with what was decided before ----


def test_what_somebody_chose_to_keep_stays(tmp_path: Path) -> None:
    run = made_run(tmp_path / "run", [near("a", width=900), near("b"), near("c")])
    decide_samples(run, ["b.jpg"], Action.KEEP, by="anna")
    proposal = keeper_rules.propose(run)
    assert kept(proposal) == {"b": True, "a": False, "c": False}
    assert why(proposal, "a") == "DUP003: b.jpg stays, which anna chose to keep"


def test_dropped_copies_and_settled_groups_are_no_longer_proposed(tmp_path: Path) -> None:
    run = made_run(tmp_path / "run", [
        near("a", width=900), near("b", width=800), near("c"),
        near("d", "h"), near("e", "h"), near("f", "i"), near("g", "i"),
    ])  # fmt: skip
    decide_samples(run, ["a.jpg", "d.jpg"], Action.DROP)
    waived = next(f for f, ids in findings(run, "DUP003").items() if "f.jpg" in ids)
    decide_findings(run, [waived], Action.FALSE_POSITIVE)
    assert kept(keeper_rules.propose(run)) == {"b": True, "c": False}
    assert kept(keeper_rules.propose(run, fingerprints=[waived])) == {"f": True, "g": False}


def test_applying_records_the_drops_with_their_reason_in_one_batch(tmp_path: Path) -> None:
    images = [near("a", width=900), near("b"), near("c", "h"), near("d", "h")]
    run = made_run(tmp_path / "run", images)
    made = keeper_rules.apply_rule(run, keeper_rules.propose(run), note="first pass", by="anna")
    assert [(d.subject, d.verb, d.by) for d in made] == [
        ("b.jpg", Action.DROP, "anna"), ("d.jpg", Action.DROP, "anna"),
    ]  # fmt: skip
    assert made[0].note.startswith("DUP003: a.jpg stays, the largest")
    assert made[0].note.endswith("; first pass")
    assert apply_decisions(run).settled["status"].to_list() == ["decided", "decided"]
    assert keeper_rules.propose(run).is_empty()
    DecisionStore(run).undo(by="anna")
    assert keeper_rules.propose(run).height == 4


def test_a_drop_is_stale_once_its_keeper_is_gone(tmp_path: Path) -> None:
    images = [near("a", width=900), near("b"), {"id": "c.jpg"}]
    run = made_run(tmp_path / "run", images)
    keeper_rules.apply_rule(run, keeper_rules.propose(run))
    assert apply_decisions(run).effective["dropped"].to_list() == [True]
    made_run(run, [images[1] | {"content_hash": made_hash(1, 64)}])
    now = apply_decisions(run)
    assert now.effective.is_empty(), "b is the last copy of the image"
    (reason,) = now.stale["reason"]
    assert reason == "the copy to keep, a.jpg: file deleted; no other file has its content"


def test_blank_pictures_are_no_group_of_copies(tmp_path: Path) -> None:
    blank = {"contrast": 0.0, "pixel_hash": "b" * 32}
    run = made_run(tmp_path / "run", [blank, blank])
    assert findings(run, "DUP002"), "one finding for all blank images"
    assert keeper_rules.propose(run, "DUP002").is_empty()


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"rule": "prettiest"}, "largest, sharpest, least-compressed, split:NAME"),
        ({"rule": "split"}, "not a keeper rule"),
        ({"rule": "largest:train"}, "not a keeper rule"),
        ({"code": "IMG001"}, "DUP001, DUP002, DUP003, SPLIT001"),
        ({"drop_from_splits": ["nowhere"]}, "it has train"),
        ({"fingerprints": ["0" * 16]}, "no group with the fingerprint"),
    ],
)
def test_mistakes_name_the_cure(arguments: dict[str, Any], says: str, tmp_path: Path) -> None:
    run = made_run(tmp_path / "run", [near("a"), near("b")])
    with pytest.raises(UsageError, match=says):
        keeper_rules.propose(run, **arguments)


def test_thousands_of_groups_at_once(tmp_path: Path) -> None:
    images = [
        near(f"{group}-{copy}", str(group), width=100 + copy)
        for group in range(700) for copy in range(3)
    ]  # fmt: skip
    run = made_run(tmp_path / "run", images, ["DUP003"])
    proposal = keeper_rules.propose(run)
    assert keeper_rules.summarise(proposal) == keeper_rules.Summary(700, 700, {"train": 1400}, {})
    assert all(sample.endswith("-2.jpg") for sample in proposal.filter("keep")["sample_id"])
    assert len(keeper_rules.apply_rule(run, proposal)) == 1400
    assert apply_decisions(run).settled.height == 700


# ---- whatever the rule ----


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
def copied_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copied_run of such copies, some kept, moved or dropped by hand; not to be changed."""
    rows = copies()
    copied_run = made_run(tmp_path_factory.mktemp("copies") / "run", rows, ["DUP", "SPLIT001"])
    ids = [str(row["id"]) for row in rows]
    decide_samples(copied_run, ids[::7], Action.KEEP)
    decide_samples(copied_run, ids[3::11], Action.MOVE, "val")
    decide_samples(copied_run, [i for i in ids[5::13] if not i.endswith("-0.jpg")], Action.DROP)
    return copied_run


def left_copies(copied_run: Path) -> dict[str, int]:
    """The files that are not dropped, by picture."""
    dropped = set(apply_decisions(copied_run).effective.filter("dropped")["id"])
    left = [str(row["id"]).split("-")[0] for row in copies() if row["id"] not in dropped]
    return {str(picture): left.count(str(picture)) for picture in range(PICTURES)}


@given(step=STEPS)
@settings(max_examples=20)
def test_no_proposal_drops_the_last_copy_of_a_group(
    copied_run: Path, step: tuple[str, str, list[str]]
) -> None:
    code, rule, splits = step
    proposal = keeper_rules.propose(copied_run, code, rule, None, splits)
    drops = proposal.filter(~pl.col("keep"))
    whole = proposal.group_by("group").agg((~pl.col("keep")).fill_null(False).all().alias("gone"))
    assert not whole["gone"].any()
    assert not set(drops["keeper"]) & set(drops["sample_id"]), "a keeper is dropped itself"


@given(steps=st.lists(STEPS, min_size=1, max_size=3))
@settings(max_examples=8)
def test_no_order_of_rules_drops_the_last_copy_of_a_picture(
    copied_run: Path, steps: list[tuple[str, str, list[str]]]
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        mine = Path(shutil.copytree(copied_run, Path(folder) / "run"))
        before = left_copies(mine)
        for code, rule, splits in steps:
            keeper_rules.apply_rule(mine, keeper_rules.propose(mine, code, rule, None, splits))
        after = left_copies(mine)
    assert all(after[picture] for picture, n in before.items() if n)
