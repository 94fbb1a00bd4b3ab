"""What pictures need, on classes of which it is known: fine detail, colour, position, nothing."""

import json
from collections.abc import Callable
from dataclasses import replace
from html import unescape
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from PIL import Image
from typer.testing import CliRunner

from audit.cli.main import app
from audit.compare.needs import (
    LOSES,
    NOTHING_LOST,
    UNKNOWN,
    PictureNeeds,
    Version,
    find_varying,
    judge_pictures,
)
from audit.report.html_page import to_html
from audit.report.thumbnails import make_thumbnails
from audit.results.run_report import collect_report
from tests.audit.run.scanned import scan_tree

pytestmark = pytest.mark.slow

N, BASE = 240, 32


def backgrounds(rng: np.random.Generator) -> np.ndarray:
    """Coarse fields of light that say nothing of a class."""
    coarse = rng.uniform(90, 160, (N, 4, 4, 1)).repeat(3, axis=3)
    return coarse.repeat(BASE // 4, 1).repeat(BASE // 4, 2) + rng.normal(0, 3, (N, BASE, BASE, 3))


def needs(pictures: np.ndarray, labels: np.ndarray) -> PictureNeeds:
    ids, classes = [f"{i:04}" for i in range(N)], [f"class {i}" for i in labels]
    rows = pl.DataFrame({"id": ids, "unit": ids, "label": classes})
    rows = rows.with_columns(width=pl.lit(640), height=pl.lit(480))
    return judge_pictures(Path("run"), rows, np.clip(pictures, 0, 255).astype(np.uint8))


def version(found: PictureNeeds, name: str) -> Version:
    return next(v for v in (*found.sizes, *found.versions) if name in v.name)


def by_detail(pictures: np.ndarray, other: np.ndarray) -> None:
    stripes = 25 * (-1.0) ** np.arange(BASE)
    pictures += stripes[None, :, None, None]
    other += stripes[None, None, :, None]


def by_colour(pictures: np.ndarray, other: np.ndarray) -> None:
    # of equal luma, 0.299 R + 0.587 G + 0.114 B
    pictures += np.array([30.0, -15.28, 0.0])
    other -= np.array([30.0, -15.28, 0.0])


def by_position(pictures: np.ndarray, other: np.ndarray) -> None:
    pictures[:, : BASE // 2] += 50
    other[:, BASE // 2 :] += 50


def of_two_classes(change: Callable[[np.ndarray, np.ndarray], None], seed: int) -> PictureNeeds:
    """Judge pictures of two classes, which differ by a change of both."""
    labels, pictures = np.arange(N) % 2, backgrounds(np.random.default_rng(seed))
    ones, others = pictures[labels == 0], pictures[labels == 1]
    change(ones, others)
    pictures[labels == 0], pictures[labels == 1] = ones, others
    return needs(pictures, labels)


@pytest.mark.parametrize(
    ("change", "smallest", "lost", "kept"),
    [
        (by_detail, BASE, ["16 px"], ["tiles", "grey"]),
        (by_colour, 8, ["grey"], ["tiles"]),
        (by_position, 8, ["tiles"], ["grey"]),
    ],
)
def test_what_is_lost_where_classes_differ_by_that_alone(
    change: Callable[[np.ndarray, np.ndarray], None], smallest: int, lost: list[str],
    kept: list[str],
) -> None:  # fmt: skip
    found = of_two_classes(change, seed=1)
    assert (found.base, found.smallest) == (BASE, smallest)
    assert found.accuracy > 0.95
    # 640 x 480 for 8 px: libjpeg makes an eighth of each side
    assert (found.pixels, found.decoded) == (640 * 480, 64) or smallest == BASE
    assert {version(found, name).verdict for name in lost} == {LOSES}
    assert {version(found, name).verdict for name in kept} == {NOTHING_LOST}


def by_light(pictures: np.ndarray, other: np.ndarray) -> None:
    pictures += 40


def by_border(pictures: np.ndarray, other: np.ndarray) -> None:
    for side in (pictures[:, :2], pictures[:, -2:], pictures[:, :, :2], pictures[:, :, -2:]):
        side[:] = 20


def by_turn(pictures: np.ndarray, other: np.ndarray) -> None:
    """The other class is the same, turned."""
    for one in (pictures, other):
        one += np.linspace(60, -60, BASE)[None, :, None, None]
    other[:] = np.rot90(other, 1, (1, 2))


def by_surroundings(pictures: np.ndarray, other: np.ndarray) -> None:
    pictures[:, :6, :6] += 60


ARMS = ("light equalised", "border cut", "orientation normalised", "background greyed")


@pytest.mark.parametrize(
    ("change", "lost"),
    [(by_light, {0}), (by_border, {1, 3}), (by_turn, {2}), (by_surroundings, {3})],
)
def test_what_may_be_taken_out(
    change: Callable[[np.ndarray, np.ndarray], None], lost: set[int]
) -> None:
    found = of_two_classes(change, seed=6)
    assert found.accuracy > 0.9
    losing = {i for i, arm in enumerate(ARMS) if version(found, arm).verdict == LOSES}
    assert lost <= losing
    assert not (losing & {0, 2, 3} - lost)


def test_what_is_spurious_and_why_no_size_is_smaller_are_told() -> None:
    def one(name: str, verdict: str, size: int = 64) -> Version:
        return Version(name, size, 0.5, 0.05, 0.01, 0.09, verdict)

    sizes = [one("64 px", NOTHING_LOST), one("32 px", LOSES, 32)]
    arms = [one("light equalised", NOTHING_LOST), one("background greyed", LOSES),
            one("the middle half of each side", NOTHING_LOST)]  # fmt: skip
    found = PictureNeeds(Path(), "", base=64, smallest=64, sizes=sizes, versions=arms)
    assert found.sentence == "Keep 64 px: at 32 px 5.0 points are lost."
    assert (
        found.spurious == "The classes do not depend on differences of light: they can be removed."
    )
    untold = replace(found, sizes=[sizes[0], one("32 px", UNKNOWN, 32)], versions=arms[1:])
    assert "32 px is inconclusive: the loss is 1.0 to 9.0 points" in untold.sentence
    assert untold.spurious.startswith("No variation is shown to be spurious")


def test_what_varies_in_a_class() -> None:
    rng = np.random.default_rng(7)
    labels, pictures = np.arange(N) % 3, np.full((N, BASE, BASE, 3), 120.0)
    pictures += rng.normal(0, 2, (N, 1, 1, 1))
    sides, lefts = np.full(N, 8), np.full(N, 12)
    sides[labels == 0] = rng.integers(2, 15, (labels == 0).sum()) * 2
    lefts[labels == 1] = rng.integers(0, 24, (labels == 1).sum())
    pictures[labels == 2] += rng.normal(0, 30, ((labels == 2).sum(), 1, 1, 1))
    for picture, side, left in zip(pictures, sides, lefts, strict=True):
        left = left if side == 8 else (BASE - side) // 2
        top = (BASE - side) // 2
        picture[top : top + side, left : left + side] = (250, 40, 40)
    rows = pl.DataFrame({"id": [str(i) for i in range(N)], "label": labels})
    found = find_varying(rows, np.clip(pictures, 0, 255).astype(np.uint8))
    assert [one.what for one in found[:2]] == ["size", "place"]
    assert found[2].what in ("light", "background")
    ends = [(int(one.low), int(one.high)) for one in found]
    assert sides[list(ends[0])].tolist() == [sides[labels == 0].min(), sides[labels == 0].max()]
    assert lefts[list(ends[1])].tolist() == [lefts[labels == 1].min(), lefts[labels == 1].max()]


def test_classes_that_show_nothing() -> None:
    rng = np.random.default_rng(4)
    found = needs(backgrounds(rng), rng.integers(2, size=N))
    assert "largest class alone" in found.reason
    assert found.sizes == ()


def test_the_command(tmp_path: Path) -> None:
    drawn, left = (
        backgrounds(np.random.default_rng(5)),
        (np.arange(BASE) < BASE // 2)[:, None, None],
    )
    for number in range(210):
        folder = tmp_path / "shots" / f"class {number % 2}"
        folder.mkdir(parents=True, exist_ok=True)
        pixels = drawn[number] + left * (80 * (number % 2) - 40)
        Image.fromarray(np.clip(pixels, 0, 255).astype(np.uint8)).save(folder / f"{number}.png")
    run = tmp_path / "run"
    scan_tree(tmp_path / "shots", run, checks=("FILE",))
    words = ["input-study", str(run), "--jobs", "1"]
    result = CliRunner().invoke(app, [*words, "--json"])
    assert result.exit_code == 0, result.output
    said = json.loads(result.stdout)
    assert (said["schema"], said["base"], said["classes"]) == ("audit-needs/1", 32, 2)
    assert [v["size"] for v in said["sizes"]] == [32, 16, 8]
    report = collect_report(run)
    page = to_html(report, made := make_thumbnails(report))
    assert said["sentence"] in unescape(page)
    assert "light equalised" in page
    for one in said["varying"]:
        assert f"{one['label']}: {one['what']}" in page
        assert made[0][one["low"]].data_uri in page
        assert made[0][one["high"]].data_uri in page
    kept = run / "needs.json"
    for text in (kept.read_text()[:-9], "[]", "{}"):
        kept.write_text(text)
        assert collect_report(run).needs is None
    few = CliRunner().invoke(app, [*words, "--images", "100"])
    assert "input resolution: 100 images in classes" in " ".join(few.output.split())
    assert "input resolution: 100 images" in str(collect_report(run).needs)
    (tmp_path / "shots" / "class 0" / "0.png").unlink()  # the run is another one
    scan_tree(tmp_path / "shots", run, checks=("FILE",))
    assert collect_report(run).needs is None
