"""Keypoints of YOLO: how many follow the box, of how many numbers, and which are left and right.

`data.yaml` says it: `kpt_shape: [17, 3]`, `flip_idx` (what each keypoint becomes in a mirrored
picture), `kpt_names`. Without `kpt_shape` a folder is one of poses where all its long lines have
one length that fits a box and triples whose third number is 0, 1 or 2: an outline of as many
numbers, four corners of a turned box included, has shares there.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
import polars as pl

from audit.annotations.class_names import nearest_texts, yaml_items
from audit.annotations.discovery import Tree
from audit.annotations.geometry import Numbers
from audit.annotations.keypoints import flip_names
from audit.annotations.problems import ProblemLog

BOX = 4  # numbers of the box, before the keypoints
SAMPLED = 200  # label files from which the form is told where no file says it
_CLASS = re.compile(
    r"^[ \t]+['\"]?(\d+)['\"]?[ \t]*:[ \t]*(\[[^\]]*\])?[^\n]*\n((?:[ \t]+-[^\n]*\n?)*)", re.M
)


@dataclass(frozen=True, slots=True)
class PoseForm:
    """What follows the box: `points` keypoints of `numbers` (2 or 3) each.

    `flip` is the keypoint that each becomes in a mirrored picture, () where no file says it;
    `names` are names of keypoints by class; `stated_by` is the file, '' where lines told it.
    """

    points: int
    numbers: int
    flip: tuple[int, ...] = ()
    names: dict[str, list[str]] = field(default_factory=dict)
    stated_by: str = ""

    @property
    def columns(self) -> int:
        """Numbers of a line behind its class."""
        return BOX + self.points * self.numbers

    def misfit(self) -> str:
        """Return what is wrong with a line of another length."""
        why = f"`kpt_shape` [{self.points}, {self.numbers}]" if self.stated_by else "other lines"
        return f"a line has not the {1 + self.columns} columns that {why} ask for"

    def point_names(self, key: str) -> list[str] | None:
        """Return the names of the keypoints of a class, None where nothing tells them apart."""
        return self.names.get(key) or flip_names(self.flip) or None

    def triples(self, values: Numbers) -> Numbers:
        """Return (rows, points * 3) numbers x, y, visibility from those of the lines.

        Of two numbers each, a point is visible (2) unless it lies at (0, 0) or below 0, which is
        how such files leave a point out.
        """
        if self.numbers == 3:
            return values
        points = values.reshape(len(values), self.points, 2)
        marked = (points >= 0).all(2) & (points != 0).any(2)
        seen = np.where(marked | np.isnan(points).any(2), 2.0, 0.0)
        return np.concatenate([points, seen[..., None]], 2).reshape(len(values), -1)


def load_pose(tree: Tree, folder: str, problems: ProblemLog) -> PoseForm | None:
    """Return what `kpt_shape` of the nearest file that names classes says, None without one."""
    for path, text in nearest_texts(tree, folder):
        given = yaml_items(text, "kpt_shape") if path.lower().endswith((".yaml", ".yml")) else {}
        shape = _whole(given) or []
        if given and (len(shape) != 2 or shape[0] < 1 or shape[1] not in (2, 3)):
            said = "`kpt_shape` is not [number of keypoints, 2 or 3]"
            problems.add("malformed", said, path)
        elif given:
            flip = _flip(text, shape[0], path, problems)
            return PoseForm(shape[0], shape[1], flip, _names(text, shape[0]), path)
        if given or yaml_items(text, "names"):  # files that are farther are of other labels
            return None
    return None


def _flip(text: str, points: int, path: str, problems: ProblemLog) -> tuple[int, ...]:
    given = yaml_items(text, "flip_idx")
    flip = _whole(given) or []
    back = sorted(flip) == list(range(points)) and all(flip[j] == i for i, j in enumerate(flip))
    if given and not back:
        said = f"`flip_idx` does not pair the {points:,} keypoints: mirrored twice, each is itself"
        problems.add("malformed", said, path)
    return tuple(flip) if back else ()


def _whole(items: dict[str, str]) -> list[int] | None:
    texts = list(items.values())
    return [int(t) for t in texts] if all(t.isascii() and t.isdigit() for t in texts) else None


def _names(text: str, points: int) -> dict[str, list[str]]:
    """Return `kpt_names` by class; lists of another length than there are keypoints are none."""
    below = re.search(r"^kpt_names\s*:[^\n]*\n((?:[ \t][^\n]*\n?|\s*\n)*)", text, re.M)
    found = {}
    for key, inline, listed in _CLASS.findall(below[1]) if below else ():
        names = list(yaml_items(f"x: {inline}\n{listed}", "x").values())
        if len(names) == points:
            found[key] = names
    return found


def guess_pose(raws: Iterable[bytes | OSError]) -> PoseForm | None:
    """Return the form that all long lines of some label files have in common, None without."""
    lengths: set[int] = set()
    for raw, _ in zip(
        (raw for raw in raws if isinstance(raw, bytes)), range(SAMPLED), strict=False
    ):
        for line in raw.splitlines():
            tokens = line.split()[1:]
            if len(tokens) > BOX + 1:
                lengths.add(len(tokens))
                if len(lengths) > 1 or len(tokens) % 3 != 1 or not _marked(tokens[BOX + 2 :: 3]):
                    return None
    return PoseForm((lengths.pop() - BOX) // 3, 3) if lengths else None


def _marked(tokens: Sequence[bytes]) -> bool:
    try:
        return {float(token) for token in tokens} <= {0.0, 1.0, 2.0}
    except ValueError:
        return False


def pose_shapes(frame: pl.DataFrame, values: Numbers, form: PoseForm) -> pl.DataFrame:
    """Return rows of shapes: of lines (`image_key`, `line`) and their numbers behind the box."""
    width = 3 * form.points
    points = pl.Series("points", form.triples(values), pl.Array(pl.Float64, width))
    return frame.select(
        "image_key", entry=pl.col("line") - 1, kind=pl.lit("keypoints"), part=pl.lit(0, pl.Int32),
        n_points=pl.lit(form.points, pl.Int64),
    ).with_columns(points.cast(pl.List(pl.Float64)))  # fmt: skip
