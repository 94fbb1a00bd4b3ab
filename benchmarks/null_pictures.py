"""Pictures that look alike by nature and are no copies: what a near-duplicate search calls same.

    python benchmarks/null_pictures.py table [--kinds digits,screens] [--seeds 3]
    python benchmarks/null_pictures.py checks [--sets 200] [--planted 10] [--first-seed 0]
        [--results F.jsonl] [--shard 0/2] [--only WORD,...] [--data ../shared/data]

Each kind is drawn by parameters that vary as they do in the world: those of the set (the layout of
a program, a font, a style of icons) once, the rest picture by picture. No picture of a set is a
copy of another, so every group is a false one. Splits and labels are dealt at random, so that a
group is an error of the dataset where its members differ in either. The same pictures are searched
again with planted copies: re-encoded, rescaled, cropped, of slightly other colours, squashed from
16:9 to a square, mirrored, and always saved as JPEG.

`table` searches each set without and with the plants, in this process, as a scan does, and prints a
line a kind. About 15 minutes.

`checks` scans whole datasets, with all checks: of drawn kinds, of scenes of six frames, of halves
of the photographs and of CIFAR-10. Classes and splits are dealt at random (of digits and of CIFAR
every other set keeps its own classes). What may be true in such a set (copies, frames of one scene,
labels that mean nothing) is counted apart: TRUE. Then something is planted in such sets, in one
class or in some pictures, and counted is how often it is found. With --results a set that is in the
file is not scanned again. 3 to 10 s a set.

    python benchmarks/null_pictures.py boxes [--sets 100] [--data ../shared/data]

`boxes` asks of random halves of the annotated photographs, and of drawn scenes with objects of 12
classes, whether their boxes fit better elsewhere (BOX015): as they lie, and after all of them were
mirrored, turned, moved, or laid on the next picture. About a minute.
"""

from __future__ import annotations

import hashlib
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any
from xml.etree.ElementTree import parse

import cv2
import numpy as np
import numpy.typing as npt
import polars as pl
from any_order import find_near_duplicates
from bench import (
    Document,
    Picture,
    cifar_pictures,
    hall,
    judged_pairs,
    measures,
    photographs,
    read_picture,
    real_data,
    save_row,
    saved_rows,
    shard_of,
    timed,
    told,
)
from PIL import Image, ImageDraw, ImageFont

from audit.checking.check import make_params, select_checks
from audit.checks.box_shifted_class import ShiftedClass
from audit.embeddings.class_marks import relate_marks
from audit.neighbors.pairs.signature_store import write_signatures
from audit.neighbors.search import Relation, SearchOptions
from audit.picture.features import feature_picture
from audit.picture.hashing import hash_bits, reduce_luma
from audit.picture.measure import PictureBatch, signature_table
from audit.picture.pixels import Picture as Measurable
from audit.picture.signatures import make_signature, stack_signatures
from audit.run.run_version import open_run
from audit.scanning import scanning
from audit.sources import open_source
from audit.statistics.box_fit import (
    better_elsewhere,
    gains_elsewhere,
    integral_planes,
)
from audit.statistics.intervals import wilson
from audit.testing import Case, case_store

Rng = np.random.Generator
Draw = Callable[[Rng], Picture]
SIDE = 256
PLANTS = 40
app = hall(__doc__)

WORDS = """data image label train test split class model loss epoch batch pixel frame camera
scene weight layer noise error value score total amount invoice street number date city
account the of and to in is that for with as on are this be from or at by an""".split()  # noqa: SIM905


def between(rng: Rng, low: float, high: float) -> float:
    return float(rng.uniform(low, high))


def colour(rng: Rng, low: int = 0, high: int = 256) -> tuple[int, int, int]:
    r, g, b = (int(c) for c in rng.integers(low, high, 3))
    return r, g, b


@cache
def font(size: int) -> Any:
    return ImageFont.load_default(size)


def words(rng: Rng, least: int, most: int) -> str:
    return " ".join(rng.choice(WORDS, int(rng.integers(least, most + 1))))


def noisy(board: npt.NDArray[Any], rng: Rng, sigma: float) -> Picture:
    grain = rng.normal(0, sigma, board.shape)
    return np.clip(np.rint(board + grain), 0, 255).astype(np.uint8)


def field_of(rng: Rng, side: int, cells: float) -> npt.NDArray[np.float32]:
    """Return smooth noise (side, side), mean 0 and deviation 1, with so many bumps a side."""
    n = max(2, round(cells) + 1)
    coarse = rng.normal(size=(n, n)).astype(np.float32)
    smooth = cv2.resize(coarse, (side, side), interpolation=cv2.INTER_CUBIC)
    return np.asarray((smooth - smooth.mean()) / max(float(smooth.std()), 1e-6), np.float32)


# ---- digits, letters of one hand ----

_RING = [(0.5, 0.5), (0.22, 0.7), (0.5, 0.9), (0.78, 0.7)]
_STROKES = {
    0: [(0.5, 0.1), (0.2, 0.3), (0.2, 0.7), (0.5, 0.9), (0.8, 0.7), (0.8, 0.3), (0.5, 0.1)],
    1: [(0.35, 0.25), (0.55, 0.1), (0.55, 0.9)],
    2: [(0.2, 0.3), (0.4, 0.1), (0.75, 0.2), (0.7, 0.45), (0.2, 0.9), (0.8, 0.9)],
    3: [(0.2, 0.15), (0.7, 0.15), (0.5, 0.45), (0.8, 0.65), (0.6, 0.9), (0.2, 0.85)],
    4: [(0.65, 0.9), (0.65, 0.1), (0.2, 0.6), (0.85, 0.6)],
    5: [(0.75, 0.1), (0.3, 0.1), (0.25, 0.45), (0.7, 0.5), (0.7, 0.85), (0.2, 0.88)],
    6: [(0.7, 0.1), (0.3, 0.4), (0.25, 0.75), (0.5, 0.9), (0.75, 0.7), (0.5, 0.5), (0.28, 0.65)],
    7: [(0.2, 0.12), (0.8, 0.12), (0.4, 0.9)],
    8: [(0.5, 0.5), (0.25, 0.3), (0.5, 0.1), (0.75, 0.3), *_RING, (0.5, 0.5)],
    9: [(0.75, 0.35), (0.5, 0.5), (0.3, 0.3), (0.5, 0.1), (0.75, 0.3), (0.65, 0.9)],
}


def digit(rng: Rng, value: int) -> Picture:
    """Draw a digit of 28 px with a pen of its own width and slant, white on black."""
    points = np.array(_STROKES[value]) + rng.normal(0, 0.035, (len(_STROKES[value]), 2))
    slant = rng.normal(0, 0.15)
    points[:, 0] += slant * (0.5 - points[:, 1])
    fine = np.concatenate(
        [np.linspace(a, b, 8, endpoint=False) for a, b in pairwise(points)] + [points[-1:]]
    )
    smooth = cv2.GaussianBlur(fine.astype(np.float32), (1, 9), 0, sigmaY=2.0)
    board = np.zeros((112, 112), np.uint8)
    path = (smooth * 80 + 16).astype(np.int32).reshape(-1, 1, 2)
    cv2.polylines(board, [path], False, 255, int(rng.integers(7, 13)), cv2.LINE_AA)
    small = cv2.resize(board, (28, 28), interpolation=cv2.INTER_AREA)
    return np.asarray(cv2.cvtColor(small, cv2.COLOR_GRAY2RGB), np.uint8)


def digits(style: Rng) -> Draw:
    return lambda rng: digit(rng, int(rng.integers(10)))


# ---- screens of three programs ----


def _mail(style: Rng) -> Callable[[Rng, ImageDraw.ImageDraw, int, int], None]:
    """A program with a bar, a list of folders and a table of messages."""
    bar, side, chosen = colour(style, 40, 160), colour(style, 220, 256), colour(style, 150, 230)
    width, row = int(style.integers(150, 240)), int(style.integers(26, 40))

    def draw(rng: Rng, pen: ImageDraw.ImageDraw, w: int, h: int) -> None:
        pen.rectangle((0, 0, w, 52), bar)
        pen.text((16, 14), words(rng, 1, 3).title(), "white", font(20))
        pen.rectangle((0, 52, width, h), side)
        for k in range(int(rng.integers(5, 14))):
            pen.text((18, 70 + 32 * k), words(rng, 1, 2), (60, 60, 60), font(15))
        rows = int(rng.integers(6, (h - 70) // row))
        picked = int(rng.integers(rows))
        for k in range(rows):
            y = 60 + row * k
            if k == picked:
                pen.rectangle((width, y, w, y + row), chosen)
            pen.text((width + 14, y + 6), words(rng, 1, 2).title(), "black", font(14))
            pen.text((width + 190, y + 6), words(rng, 2, 14), (70, 70, 70), font(14))
            pen.text((w - 80, y + 6), f"{rng.integers(24):02}:{rng.integers(60):02}", 0, font(13))
            pen.line((width, y + row, w, y + row), (225, 225, 225))

    return draw


def _editor(style: Rng) -> Callable[[Rng, ImageDraw.ImageDraw, int, int], None]:
    """A dark editor: a tree of files and coloured, indented lines."""
    ground, tree = colour(style, 20, 45), colour(style, 30, 60)
    inks = [colour(style, 110, 256) for _ in range(5)]

    def draw(rng: Rng, pen: ImageDraw.ImageDraw, w: int, h: int) -> None:
        pen.rectangle((0, 0, w, h), ground)
        pen.rectangle((0, 0, 200, h), tree)
        pen.rectangle((0, h - 24, w, h), inks[0])
        for k in range(int(rng.integers(6, 24))):
            pen.text((14 + 16 * int(rng.integers(3)), 12 + 24 * k), words(rng, 1, 1), (200,) * 3,
                     font(13))  # fmt: skip
        indent = 0
        for k in range(int(rng.integers(12, (h - 40) // 20))):
            indent = int(np.clip(indent + rng.integers(-1, 2), 0, 5))
            if rng.random() < 0.12:
                continue
            x = 250.0 + 28 * indent
            pen.text((214, 12 + 20 * k), str(k + 1), (110,) * 3, font(12))
            for _ in range(int(rng.integers(1, 5))):
                part = words(rng, 1, 3)
                pen.text((x, 12 + 20 * k), part, inks[int(rng.integers(5))], font(14))
                x += font(14).getlength(part + " ")

    return draw


def _dashboard(style: Rng) -> Callable[[Rng, ImageDraw.ImageDraw, int, int], None]:
    """Cards with figures over two charts."""
    ground, ink, bar = colour(style, 225, 250), colour(style, 30, 170), colour(style, 0, 90)

    def draw(rng: Rng, pen: ImageDraw.ImageDraw, w: int, h: int) -> None:
        pen.rectangle((0, 0, w, h), ground)
        pen.rectangle((0, 0, 70, h), bar)
        for k in range(6):
            pen.ellipse((22, 30 + 70 * k, 48, 56 + 70 * k), (200, 200, 210))
        wide = (w - 110) // 4
        for k in range(4):
            x = 90 + k * wide
            pen.rectangle((x, 20, x + wide - 16, 140), "white", (205,) * 3)
            pen.text((x + 14, 30), words(rng, 1, 2), (90,) * 3, font(15))
            pen.text(
                (x + 14, 66), f"{rng.integers(10 ** int(rng.integers(2, 7))):,}", ink, font(34)
            )
        half = (w - 110) // 2
        for k in range(2):
            x, low = 90 + k * half, h - 30
            pen.rectangle((x, 160, x + half - 16, low), "white", (205,) * 3)
            n = int(rng.integers(5, 30))
            level = np.cumsum(rng.normal(size=n)) if k else rng.gamma(2, 1, n)
            level = (level - level.min()) / max(float(np.ptp(level)), 1e-6)
            step = (half - 60) / n
            at = [(x + 20 + step * i, low - 20 - (low - 220) * float(v)) for i, v in
                  enumerate(level)]  # fmt: skip
            if k:
                pen.line(at, ink, 3)
            else:
                for left, top in at:
                    pen.rectangle((left, top, left + 0.7 * step, low - 20), ink)

    return draw


def screens(style: Rng) -> Draw:
    programs = [_mail(style), _editor(style), _dashboard(style)]
    sizes = [(1280, 720), (1440, 900), (1024, 768)]

    def draw(rng: Rng) -> Picture:
        w, h = sizes[int(rng.integers(3))]
        sheet = Image.new("RGB", (w, h), "white")
        programs[int(rng.integers(3))](rng, ImageDraw.Draw(sheet), w, h)
        return np.asarray(sheet, np.uint8)

    return draw


# ---- paper ----


def page(rng: Rng) -> Picture:
    """Draw a page of one layout: a title, two paragraphs, a table of numbers."""
    sheet = Image.new("RGB", (620, 877), "white")
    pen = ImageDraw.Draw(sheet)
    pen.text((60, 50), " ".join(rng.choice(WORDS, 4)).title(), "black", font(30))
    for line in range(22):
        text = " ".join(rng.choice(WORDS, 20))
        text = text[: 68 if line % 11 < 10 else int(rng.integers(15, 60))]
        pen.text((60, 120 + 22 * line + (20 if line > 10 else 0)), text, "black", font(15))
    for row in range(7):
        y = 650 + 26 * row
        pen.line((60, y, 560, y), "black")
        for column in range(4):
            pen.text((66 + 125 * column, y + 4), str(rng.integers(1, 10**5)), "black", font(15))
    return np.asarray(sheet, np.uint8)


def pages(style: Rng) -> Draw:
    """Half are pages of one form, half flow freely: columns, headings, paragraphs."""

    def flowing(rng: Rng) -> Picture:
        sheet = Image.new("L", (620, 877), int(rng.integers(238, 256)))
        pen = ImageDraw.Draw(sheet)
        columns, size = int(rng.integers(1, 3)), int(rng.integers(12, 17))
        wide = (500 - 20 * (columns - 1)) / columns
        for column in range(columns):
            x, y = 60 + column * (wide + 20), between(rng, 50, 140)
            while y < 810:
                if rng.random() < 0.06:
                    pen.text((x, y + 8), words(rng, 1, 2).title(), 0, font(size + 8))
                    y += 2.6 * size
                    continue
                text = " ".join(rng.choice(WORDS, 18))
                share = between(rng, 0.2, 0.9) if rng.random() < 0.2 else 1.0
                pen.text((x, y), text[: int(share * wide / size * 1.9)], 30, font(size))
                y += 1.35 * size + (size if share < 1 and rng.random() < 0.6 else 0)
        return np.asarray(sheet.convert("RGB"), np.uint8)

    return lambda rng: page(rng) if rng.random() < 0.5 else flowing(rng)


def diagrams(style: Rng) -> Draw:
    """Charts as one library draws them: the same axes, other values."""
    inks = [colour(style, 0, 200) for _ in range(4)]

    def draw(rng: Rng) -> Picture:
        w, h = 640, 480
        sheet = Image.new("RGB", (w, h), "white")
        pen = ImageDraw.Draw(sheet)
        pen.rectangle((80, 50, 580, 420), outline="black")
        pen.text((200, 16), words(rng, 1, 4), "black", font(20))
        for k in range(6):
            pen.text((36, 410 - 74 * k), f"{k * rng.integers(1, 90)}", "black", font(14))
            pen.text((84 + 96 * k, 428), f"{k * rng.integers(1, 90)}", "black", font(14))
        kind, series = int(rng.integers(3)), int(rng.integers(1, 4))
        for s in range(series):
            n = int(rng.integers(8, 60))
            level = np.cumsum(rng.normal(size=n)) + between(rng, -3, 3) * np.linspace(0, 3, n)
            level = 400 - 330 * (level - level.min()) / max(float(np.ptp(level)), 1e-6)
            at = np.linspace(95, 570, n)
            if kind == 0:
                pen.line(list(zip(at.tolist(), level.tolist(), strict=True)), inks[s], 3)
            for x, y in zip(at, rng.permutation(level) if kind == 1 else level, strict=True):
                if kind == 1:
                    pen.ellipse((x - 4, y - 4, x + 4, y + 4), inks[s])
                elif kind == 2:
                    pen.rectangle((x, y, x + 300 / n, 419), inks[s])
        return np.asarray(sheet, np.uint8)

    return draw


# ---- signs ----


def _shape(board: Picture, rng: Rng, ink: tuple[int, int, int], filled: bool) -> None:
    """One random shape somewhere on a board of 200 px."""
    x, y, r = (int(v) for v in (*rng.integers(50, 150, 2), rng.integers(18, 60)))
    width, kind = -1 if filled else int(rng.integers(6, 14)), int(rng.integers(5))
    if kind == 0:
        cv2.circle(board, (x, y), r, ink, width, cv2.LINE_AA)
    elif kind == 1:
        other = int(rng.integers(12, 60))
        cv2.rectangle(board, (x - r, y - other), (x + r, y + other), ink, width)
    elif kind == 2:
        turn = np.linspace(0, 2 * np.pi, int(rng.integers(3, 7)), endpoint=False) + rng.random()
        corner = np.stack([x + r * np.cos(turn), y + r * np.sin(turn)], 1).astype(np.int32)
        cv2.polylines(board, [corner], True, ink, abs(width), cv2.LINE_AA)
        if filled:
            cv2.fillPoly(board, [corner], ink, cv2.LINE_AA)
    elif kind == 3:
        ends = [(int(a), int(b)) for a, b in rng.integers(20, 180, (2, 2))]
        cv2.line(board, *ends, ink, max(6, abs(width)), cv2.LINE_AA)
    else:
        from_, to = (int(v) for v in (rng.integers(360), rng.integers(90, 300)))
        cv2.ellipse(board, (x, y), (r, int(rng.integers(15, 60))), 0, from_, from_ + to, ink,
                    max(6, abs(width)), cv2.LINE_AA)  # fmt: skip


def icons(style: Rng) -> Draw:
    """Three to six strokes or shapes of one ink on white, as a set of icons has."""
    ink, filled = colour(style, 0, 120), between(style, 0.0, 0.5)

    def draw(rng: Rng) -> Picture:
        board = np.full((200, 200, 3), 255, np.uint8)
        for _ in range(int(rng.integers(3, 7))):
            _shape(board, rng, ink, bool(rng.random() < filled))
        side = int(rng.choice([64, 96, 128, 200]))
        return np.asarray(cv2.resize(board, (side, side), interpolation=cv2.INTER_AREA), np.uint8)

    return draw


def logo(rng: Rng) -> Picture:
    """Draw two to four simple shapes in two colours on white, and letters."""
    board = np.full((200, 200, 3), 255, np.uint8)
    palette = [colour(rng, 0, 200) for _ in range(2)]
    for _ in range(int(rng.integers(2, 5))):
        _shape(board, rng, palette[int(rng.integers(2))], bool(rng.integers(2)))
    letters = "".join(chr(65 + int(c)) for c in rng.integers(0, 26, int(rng.integers(2, 6))))
    cv2.putText(
        board, letters, (30, 185), cv2.FONT_HERSHEY_DUPLEX, 1.6, (20, 20, 20), 3, cv2.LINE_AA
    )
    return board


def logos(style: Rng) -> Draw:
    return logo


def silhouettes(style: Rng) -> Draw:
    """One closed outline, filled, on an empty ground: products, animals, leaves."""
    ground = colour(style, 225, 256)

    def draw(rng: Rng) -> Picture:
        side, turn = 240, np.linspace(0, 2 * np.pi, 200, endpoint=False)
        reach = 1 + sum(
            between(rng, -0.45, 0.45) / k * np.cos(k * turn + between(rng, 0, 6.3))
            for k in range(2, 9)
        )
        reach *= 75 / reach.max()
        shape = between(rng, 0.6, 1.4)
        at = np.stack([120 + shape * reach * np.cos(turn), 120 + reach * np.sin(turn)], 1)
        board = np.full((side, side, 3), ground, np.uint8)
        ink = np.array(colour(rng, 0, 150))
        cv2.fillPoly(board, [at.astype(np.int32)], ink.tolist(), cv2.LINE_AA)
        shade = 12 * field_of(rng, side, 2)[..., None] * (board != ground)
        return noisy(board + shade, rng, 1.5)

    return draw


def vehicles(style: Rng) -> Draw:
    """32 px: one type of aircraft, ship or van from the side on a plain sky or sea."""

    def draw(rng: Rng) -> Picture:
        s = 128
        sky = np.linspace(0, between(rng, -50, 50), s)[:, None, None]
        board = np.tile(np.array(colour(rng, 110, 230), np.float64), (s, s, 1)) + sky
        x, y, n = between(rng, 54, 74), between(rng, 54, 74), between(rng, 28, 50)
        tilt, kind, ink = between(rng, -0.3, 0.3), int(rng.integers(3)), colour(rng, 10, 250)
        parts = {
            0: [[(-1, 0), (-0.8, -0.12), (0.8, -0.1), (1, 0), (0.8, 0.1), (-0.8, 0.1)],
                [(-0.1, 0), (0.2, 0), (-0.3, 0.45)], [(-1, -0.4), (-0.8, -0.4), (-0.7, 0)]],
            1: [[(-1, 0), (1, 0), (0.8, 0.25), (-0.85, 0.25)],
                [(-0.5, 0), (0.4, 0), (0.35, -0.3), (-0.4, -0.3)], [(-0.1, -0.3), (0, -0.6),
                                                                    (0.1, -0.3)]],
            2: [[(-1, 0.35), (-1, -0.4), (0.4, -0.4), (0.75, 0), (1, 0.05), (1, 0.35)],
                [(-0.7, 0.3), (-0.6, 0.5), (-0.4, 0.5), (-0.3, 0.3)], [(0.5, 0.3), (0.6, 0.5),
                                                                       (0.7, 0.5), (0.8, 0.3)]],
        }[kind]  # fmt: skip
        face = 1 if rng.integers(2) else -1
        for k, part in enumerate(parts):
            at = (np.array(part) + rng.normal(0, 0.05, (len(part), 2))) * (face * n, n)
            c, d = np.cos(tilt), np.sin(tilt)
            at = at @ np.array([[c, d], [-d, c]]) + (x, y)
            shade = np.clip(np.array(ink) * (1, 0.7, 0.85)[k], 0, 255).tolist()
            cv2.fillPoly(board, [at.astype(np.int32)], shade, cv2.LINE_AA)
        small = cv2.resize(board, (32, 32), interpolation=cv2.INTER_AREA)
        return noisy(small, rng, 2.0)

    return draw


# ---- measuring instruments ----


def spectrograms(style: Rng) -> Draw:
    """Sounds of one kind: harmonics that glide, pauses, hiss that falls with the pitch."""
    palette = int(style.choice([cv2.COLORMAP_VIRIDIS, cv2.COLORMAP_MAGMA, cv2.COLORMAP_JET]))

    def draw(rng: Rng) -> Picture:
        w, h = 256, 128
        hiss = rng.gamma(2.0, 0.5, (h, w)) * np.linspace(0.2, 1.0, h)[:, None] * 30
        time = np.arange(w)
        pitch = 6 + 3 * np.cumsum(rng.normal(0, 0.06, w)) + between(rng, 0, 5)
        loud = np.clip(np.repeat(rng.gamma(1.2, 1.0, 16), 16), 0, 3)
        loud = cv2.GaussianBlur(loud[None], (0, 0), 3)[0] * 90
        for k in range(1, 16):
            row = h - 1 - np.clip(k * np.maximum(pitch, 3), 0, h - 1).astype(int)
            for spread in (-1, 0, 1):
                hiss[np.clip(row + spread, 0, h - 1), time] += loud / k**0.7 / (1 + abs(spread))
        level = np.clip(18 * np.log1p(hiss), 0, 255) * 2.4
        grey = np.clip(level - 40, 0, 255).astype(np.uint8)
        return np.asarray(cv2.applyColorMap(grey, palette)[..., ::-1], np.uint8)

    return draw


def xrays(style: Rng) -> Draw:
    """Chests from the front, grey: two lungs, ribs, spine, heart, a letter at the edge."""

    def draw(rng: Rng) -> Picture:
        s = 256
        board = np.full((s, s), between(rng, 150, 200), np.float64)
        tilt, wide = between(rng, -6, 6), between(rng, 0.85, 1.15)
        cv2.ellipse(board, (128, 150), (int(112 * wide), 130), tilt, 0, 360,
                    between(rng, 170, 215), -1)  # fmt: skip
        for face in (-1, 1):
            at = int(128 + face * between(rng, 46, 56) * wide), int(between(rng, 112, 128))
            size = int(between(rng, 32, 42) * wide), int(between(rng, 66, 86))
            cv2.ellipse(
                board, at, size, face * between(rng, 2, 12), 0, 360, between(rng, 50, 85), -1
            )
            rise, gap = between(rng, 16, 24), between(rng, 17, 22)
            for k in range(9):
                y = int(50 + gap * k)
                cv2.ellipse(board, (int(128 + face * 50), y + 20), (int(48 * wide), int(rise)),
                            face * between(rng, 8, 14), 190, 350, between(rng, 95, 130),
                            int(rng.integers(3, 6)))  # fmt: skip
        cv2.rectangle(board, (120, 0), (136, s), between(rng, 190, 225), -1)
        at = int(between(rng, 136, 150)), int(between(rng, 160, 180))
        cv2.ellipse(board, at, (int(between(rng, 26, 40)), int(between(rng, 32, 48))),
                    between(rng, 20, 50), 0, 360, between(rng, 185, 220), -1)  # fmt: skip
        board = cv2.GaussianBlur(board, (0, 0), between(rng, 2.0, 3.5))
        board += 7 * field_of(rng, s, 10) + 10 * field_of(rng, s, 3)
        grey = noisy(board, rng, 4.0)
        if rng.random() < 0.7:
            cv2.putText(grey, "L", (220, 30), cv2.FONT_HERSHEY_SIMPLEX, 0.8, (240,), 2)
        return np.asarray(cv2.cvtColor(grey, cv2.COLOR_GRAY2RGB), np.uint8)

    return draw


def tiles(style: Rng) -> Draw:
    """Seen from above: fields along one grid, roads, a wood, a river, houses in some."""
    greens = [colour(style, 60, 170) for _ in range(6)]
    lie = between(style, 0, 1.5)

    def draw(rng: Rng) -> Picture:
        s = 256
        board = np.empty((s, s, 3), np.float64)
        board[:] = greens[0]
        c, d = np.cos(lie), np.sin(lie)
        gap = between(rng, 45, 90)
        for i in range(-6, 7):
            for j in range(-6, 7):
                low = np.array([i, j]) * gap + rng.normal(0, 4, 2)
                corner = low + np.array([(0, 0), (gap, 0), (gap, gap * 0.9), (0, gap * 0.9)])
                at = corner @ np.array([[c, d], [-d, c]]) + 128
                ink = np.array(greens[int(rng.integers(6))]) + rng.normal(0, 8, 3)
                cv2.fillPoly(board, [at.astype(np.int32)], ink.tolist(), cv2.LINE_AA)
        for _ in range(int(rng.integers(0, 3))):
            ends = rng.integers(-20, 276, (2, 2))
            cv2.line(board, *[(int(a), int(b)) for a, b in ends], (190, 185, 175), 4, cv2.LINE_AA)
        wood = field_of(rng, s, 4) > between(rng, 0.6, 1.8)
        board[wood] = (40, 70, 40)
        for _ in range(int(rng.integers(0, 25)) * int(rng.integers(2))):
            x, y = (int(v) for v in rng.integers(0, 250, 2))
            cv2.rectangle(board, (x, y), (x + 7, y + 5), colour(rng, 120, 230), -1)
        board += 6 * field_of(rng, s, 40)[..., None]
        return noisy(board, rng, 4.0)

    return draw


def faces(style: Rng) -> Draw:
    """Drawn heads from the front: the same parts at nearly the same places."""

    def draw(rng: Rng) -> Picture:
        s = 192
        board = np.empty((s, s, 3), np.uint8)
        board[:] = colour(rng, 120, 256)
        skin = np.array(colour(rng, 150, 240))
        hair, dark = colour(rng, 10, 160), colour(rng, 0, 80)
        x, y = int(between(rng, 88, 104)), int(between(rng, 90, 106))
        w, h = int(between(rng, 42, 58)), int(between(rng, 56, 72))
        shoulders = int(between(rng, 60, 90)), int(between(rng, 30, 50))
        cv2.ellipse(board, (x, s), shoulders, 0, 0, 360, colour(rng), -1, cv2.LINE_AA)
        if rng.random() < 0.4:
            cv2.ellipse(board, (x, y + 20), (w + 10, h + 15), 0, 0, 360, hair, -1, cv2.LINE_AA)
        cv2.ellipse(board, (x, y), (w, h), 0, 0, 360, skin.tolist(), -1, cv2.LINE_AA)
        fringe = int(between(rng, 14, 40))
        cv2.ellipse(board, (x, y - h + fringe // 2), (w, fringe), between(rng, -15, 15), 180, 360,
                    hair, -1, cv2.LINE_AA)  # fmt: skip
        apart, eye = int(between(rng, 16, 25)), int(between(rng, 4, 9))
        level = y - int(between(rng, 4, 16))
        for face in (-1, 1):
            cv2.ellipse(board, (x + face * apart, level), (eye + 3, eye), 0, 0, 360, (255,) * 3, -1,
                        cv2.LINE_AA)  # fmt: skip
            cv2.circle(board, (x + face * apart, level), max(2, eye - 2), dark, -1, cv2.LINE_AA)
            brow = level - int(between(rng, 9, 16))
            ends = [(x + face * (apart - 9), brow), (x + face * (apart + 9), brow)]
            ends[1] = ends[1][0], brow + int(between(rng, -5, 5))
            cv2.line(board, *ends, hair, int(rng.integers(2, 6)), cv2.LINE_AA)
        long = int(between(rng, 10, 26))
        cv2.line(board, (x, level + 6), (x + int(between(rng, -5, 5)), level + 6 + long),
                 (skin * 0.75).tolist(), 3, cv2.LINE_AA)  # fmt: skip
        mouth, bend = int(between(rng, 10, 26)), int(between(rng, -12, 14))
        cv2.ellipse(board, (x, y + int(h * 0.5)), (mouth, abs(bend) + 2), 0, 0 if bend > 0 else 180,
                    180 if bend > 0 else 360, (150, 40, 50), 4, cv2.LINE_AA)  # fmt: skip
        if rng.random() < 0.25:
            for face in (-1, 1):
                cv2.circle(board, (x + face * apart, level), 14, (30, 30, 30), 2, cv2.LINE_AA)
        return noisy(board, rng, 3.0)

    return draw


# ---- sets ----


# How a set is drawn, and how many pictures it has.
KINDS: Mapping[str, tuple[Callable[[Rng], Draw], int]] = {
    "digits": (digits, 600),
    "digits, many": (digits, 3000),
    "screens": (screens, 400),
    "pages": (pages, 400),
    "diagrams": (diagrams, 400),
    "icons": (icons, 400),
    "logos": (logos, 400),
    "silhouettes": (silhouettes, 400),
    "vehicles": (vehicles, 600),
    "spectrograms": (spectrograms, 400),
    "X-rays": (xrays, 400),
    "tiles": (tiles, 400),
    "faces": (faces, 400),
}


def _resized(picture: Picture, width: float, height: float) -> Picture:
    size = max(20, round(width)), max(20, round(height))
    small = size[0] * size[1] < picture.shape[0] * picture.shape[1]
    method = cv2.INTER_AREA if small else cv2.INTER_LINEAR
    return np.asarray(cv2.resize(picture, size, interpolation=method), np.uint8)


def _rescaled(picture: Picture, rng: Rng) -> Picture:
    height, width = picture.shape[:2]
    # a thumbnail keeps 28 px at least: below that nobody would know it again
    least = max(0.3, 28 / min(height, width))
    factor = between(rng, least, 0.9) if least < 0.9 and rng.random() < 0.7 else 1.5
    return _resized(picture, width * factor, height * factor)


def _cropped(picture: Picture, rng: Rng) -> Picture:
    height, width = picture.shape[:2]
    h, w = (max(2, round(n * between(rng, 0.85, 0.95))) for n in (height, width))
    y, x = int(rng.integers(height - h + 1)), int(rng.integers(width - w + 1))
    return picture[y : y + h, x : x + w].copy()


def _recoloured(picture: Picture, rng: Rng) -> Picture:
    gains, lift = rng.uniform(0.9, 1.1, 3), between(rng, -12, 12)
    return np.clip(np.rint(picture * gains + lift), 0, 255).astype(np.uint8)


def _squashed(picture: Picture, rng: Rng) -> Picture:
    """Squash 16:9 to a square, or the other way round where it is one."""
    height, width = picture.shape[:2]
    ratio = width / height
    if 0.8 < ratio < 1.25:
        return _resized(picture, width * 16 / 9, height)
    return _resized(picture, min(height, width), min(height, width))


CHANGES: Mapping[str, Callable[[Picture, Rng], Picture]] = {
    "re-encoded": lambda picture, rng: picture,
    "rescaled": _rescaled,
    "cropped": _cropped,
    "recoloured": _recoloured,
    "squashed": _squashed,
    "mirrored": lambda picture, rng: np.ascontiguousarray(picture[:, ::-1]),
}


def plant(picture: Picture, change: str, rng: Rng) -> bytes:
    """Return a changed copy as a JPEG file."""
    changed = CHANGES[change](picture, rng)
    quality = int(rng.integers(60, 96))
    _, coded = cv2.imencode(".jpg", changed[..., ::-1], [cv2.IMWRITE_JPEG_QUALITY, quality])
    return coded.tobytes()


@dataclass
class NullSet:
    """Files of a set, the planted copies last: `source` is -1 where there is none."""

    files: list[bytes] = field(default_factory=list)
    source: list[int] = field(default_factory=list)
    change: list[str] = field(default_factory=list)
    split: list[str] = field(default_factory=list)
    label: list[str] = field(default_factory=list)

    def add(self, file: bytes, source: int, change: str, rng: Rng) -> None:
        """Add a file; its split and label are dealt at random."""
        self.files.append(file)
        self.source.append(source)
        self.change.append(change)
        self.split.append("test" if rng.random() < 0.3 else "train")
        self.label.append(("one", "two", "three")[int(rng.integers(3))])


def draw_set(kind: str, seed: int) -> NullSet:
    """Draw a set of a kind; a copy has the label of its source."""
    place = list(KINDS).index(kind)
    rng = np.random.default_rng([seed, place])
    style, n = KINDS[kind]
    draw = style(rng)
    out = NullSet()
    for _ in range(n):
        _, coded = cv2.imencode(".png", draw(rng)[..., ::-1], [cv2.IMWRITE_PNG_COMPRESSION, 1])
        out.add(coded.tobytes(), -1, "", rng)
    for k, source in enumerate(np.sort(rng.permutation(n)[:PLANTS]).tolist()):
        change = list(CHANGES)[k % len(CHANGES)]
        out.add(plant(decoded(out.files[source]), change, rng), source, change, rng)
        out.label[-1] = out.label[source]
    return out


def decoded(file: bytes) -> Picture:
    picture = cv2.imdecode(np.frombuffer(file, np.uint8), cv2.IMREAD_COLOR)
    assert picture is not None
    return np.ascontiguousarray(picture[..., ::-1], np.uint8)


# ---- the search ----


@dataclass
class Measured:
    """What a scan stores of the files, and the feature pictures for checks at full resolution."""

    small: list[Picture]
    table: npt.NDArray[np.void]
    keys: list[bytes]
    phash: npt.NDArray[np.uint64]


def measure(files: list[bytes]) -> Measured:
    small, hashes = [], []
    for file in files:
        picture = decoded(file)
        scale = SIDE / max(picture.shape[:2])
        if scale < 1:
            height, width = (max(1, round(n * scale)) for n in picture.shape[:2])
            shrunk = cv2.resize(picture, (width, height), interpolation=cv2.INTER_AREA)
            picture = np.asarray(shrunk, np.uint8)
        small.append(picture)
        luma = cv2.cvtColor(picture, cv2.COLOR_RGB2GRAY)[None]
        hashes.append(hash_bits(*reduce_luma(luma))["phash"][0])
    table = stack_signatures([make_signature(picture) for picture in small])
    keys = [hashlib.blake2b(file, digest_size=16).digest() for file in files]
    return Measured(small, table, keys, np.array(hashes, np.uint64))


def search(measured: Measured, n: int) -> Relation:
    """Search the first `n` files as a scan does, but for the recall to expect."""
    return find_near_duplicates(
        measured.table[:n],
        measured.keys[:n],
        measured.phash[:n],
        options=SearchOptions(synthetic_sources=0),
        open_picture=measured.small.__getitem__,
    )


def judge(relation: Relation, drawn: NullSet, n: int) -> Document:
    """Count false groups, those of them that are errors, and planted copies found."""
    family = np.array([k if s < 0 else s for k, s in enumerate(drawn.source[:n])])
    false = errors = 0
    for group in relation.grouping.groups:
        members = list(group.members)
        if len(set(family[members])) > 1:
            false += 1
            dealt = {(drawn.split[m], drawn.label[m]) for m in members}
            errors += len({s for s, _ in dealt}) > 1 or len({x for _, x in dealt}) > 1
    label = np.full(n, -1)
    for number, group in enumerate(relation.grouping.groups):
        label[list(group.members)] = number
    lost = [
        drawn.change[k]
        for k, s in enumerate(drawn.source[:n])
        if s >= 0 and not (label[k] >= 0 and label[k] == label[s])
    ]
    called = relation.pairs.pairs
    return {
        "groups": len(relation.grouping.groups),
        "false": false,
        "errors": errors,
        "false_pairs": int((family[called[:, 0]] != family[called[:, 1]]).sum()),
        "planted": n - drawn.source[:n].count(-1),
        "found": n - drawn.source[:n].count(-1) - len(lost),
        "lost": lost,
        "threshold": round(float(relation.calibration.threshold), 2),
    }


@measures(app)
def table(kinds: str = "", seeds: int = 3, first_seed: int = 0) -> Document:
    """How many pictures that are no copies are called so, and how many copies are found?"""
    names = [name for name in KINDS if not kinds or name in kinds.split(",")]
    rows: list[Document] = []
    for name in names:
        lines = []
        # many pictures take as long as all seeds of the others
        for seed in range(first_seed, first_seed + (1 if name.endswith("many") else seeds)):
            drawn = draw_set(name, seed)
            measured, n = measure(drawn.files), drawn.source.count(-1)
            with timed() as spent:
                alone = judge(search(measured, n), drawn, n)
            planted = judge(search(measured, len(drawn.files)), drawn, len(drawn.files))
            lines.append({"alone": alone, "planted": planted, "cpu_s": spent["cpu_s"]})
        alone, planted = ([line[part] for line in lines] for part in ("alone", "planted"))
        total = {f"{part}_{key}": sum(one[key] for one in some)
                 for part, some in (("alone", alone), ("planted", planted))
                 for key in ("false", "errors")}  # fmt: skip
        found, of = (sum(one[key] for one in planted) for key in ("found", "planted"))
        lost = [change for one in planted for change in one["lost"]]
        rows.append({"kind": name, "pictures": n, "sets": len(lines), **total,
                     "sets_with_false": sum(one["false"] > 0 for one in alone),
                     "found": found, "planted": of, "lost": {c: lost.count(c) for c in CHANGES},
                     "thresholds": [one["threshold"] for one in alone],
                     "cpu_s": round(float(np.mean([line["cpu_s"] for line in lines])), 1)}
                    )  # fmt: skip
        print(told(rows[-1]), flush=True)
    return {"rows": rows}


# ---- whole datasets, judged by all checks ----


@dataclass
class Judged:
    """Pictures with class and split, what is odd among them, and the class that something has."""

    pictures: list[Picture]
    labels: list[str]
    splits: list[str]
    scenes: list[int]
    odd: list[int] = field(default_factory=list)
    marked: str = ""
    photographs: bool = False  # stored as JPEG, as they were


CLASSES = ("ant", "bee", "cow", "dog", "elk", "fox")
# What is so in a set in which nothing is wrong: sizes of classes that were dealt, the offer to
# review labels; of real pictures, that one is grey, small or long.
TRUE = {"DIST001", "DIST002", "DIST003", "LABEL007"}
TRUE_OF_REAL = {"IMG005", "IMG006", "IMG007"}


@cache
def real_pictures(real: Path, name: str) -> tuple[list[Picture], list[str]]:
    if name == "CIFAR":
        names, small = zip(*cifar_pictures(real), strict=True)
        return list(small), [one.split("/")[1] for one in names]
    found = [read_picture(path) for path in photographs(real)]
    return found, [""] * len(found)


def judged_set(kind: str, seed: int, real: Path, size: int = 0) -> Judged:
    """Draw a set of a kind in which nothing is wrong."""
    rng = np.random.default_rng([seed, 1 + list(WHOLE).index(kind)])
    n, own = int(rng.integers(100, 220)), seed % 2 == 1
    scenes = np.arange(n)
    labels: list[str] = []
    if kind == "digits":
        values = rng.integers(10, size=n)
        pictures = [digit(rng, int(v)) for v in values]
        labels = [f"digit {v}" for v in values] if own else []
    elif kind in KINDS:
        draw = KINDS[kind][0](rng)
        pictures = [draw(rng) for _ in range(n)]
    elif kind == "bursts":
        scenes = np.arange(n) // 6
        pictures = []
        for at in rng.permutation(200)[: scenes.max() + 1]:
            pictures += frames(real_pictures(real, "photographs")[0][at], rng)
        pictures = pictures[:n]
    else:
        found, names = real_pictures(real, kind)
        chosen = rng.permutation(len(found))[: 600 if kind == "CIFAR" else size or len(found) // 2]
        chosen = chosen[~np.isin(chosen, _twins(real))] if kind == "CIFAR" else chosen
        pictures, scenes = [found[i] for i in chosen], np.arange(len(chosen))
        labels = [names[i] for i in chosen] if own and names[0] else []
    k, most = int(rng.integers(2, 7)), int(scenes.max()) + 1
    dealt = rng.choice(CLASSES[:k], most)
    splits = rng.choice(["train", "test"], most, p=(0.7, 0.3))
    labels = labels or [str(dealt[s]) for s in scenes]
    return Judged(
        pictures, labels, [str(splits[s]) for s in scenes], scenes.tolist(),
        photographs=kind in ("photographs", "bursts", "CIFAR"),
    )  # fmt: skip


@cache
def _twins(real: Path) -> list[int]:
    """Return pictures that show what another one does: leaks of CIFAR-10 that a search finds."""
    twins = {one for one, _ in judged_pairs("same")}
    return [i for i, (name, _) in enumerate(cifar_pictures(real)) if name[:-4] in twins]


def frames(picture: Picture, rng: Rng) -> list[Picture]:
    """Return six frames of one scene: the camera moves and the light changes."""
    h, w = picture.shape[:2]
    places = np.cumsum(rng.uniform(-0.03, 0.05, (6, 2)), 0).clip(0, 0.2)
    cut = [picture[int(h * y) :, int(w * x) :][: int(0.8 * h), : int(0.8 * w)] for y, x in places]
    return [np.clip(part * rng.uniform(0.85, 1.15), 0, 255).astype(np.uint8) for part in cut]


WHOLE = (
    "digits", "screens", "pages", "diagrams", "icons", "tiles", "X-rays", "bursts", "CIFAR",
    "photographs", "faces", "vehicles", "spectrograms", "silhouettes",
)  # fmt: skip


# What is planted: name: (kinds, what becomes of a picture, share of the class; 0: of 3 pictures).
Change = Callable[[Picture, Rng], Picture]


def _mixed_with_noise(picture: Picture, rng: Rng) -> Picture:
    grain = rng.integers(0, 256, picture.shape)
    return np.rint(0.4 * picture + 0.6 * grain).astype(np.uint8)


def _framed(picture: Picture, rng: Rng) -> Picture:
    out, edge = picture.copy(), max(2, round(0.07 * min(picture.shape[:2])))
    out[:edge] = out[-edge:] = 0
    out[:, :edge] = out[:, -edge:] = 0
    return out


def _dated(picture: Picture, rng: Rng) -> Picture:
    """A camera writes its date into the corner."""
    height, width = picture.shape[:2]
    scale = 0.3 * width / 100
    text = f"{rng.integers(1, 29):02} {rng.integers(1, 13):02} {rng.integers(18, 26)}"
    out = picture.copy()
    at = int(0.55 * width), int(0.94 * height)
    cv2.putText(out, text, at, cv2.FONT_HERSHEY_SIMPLEX, scale, (255, 150, 30),
                max(1, round(scale * 1.6)), cv2.LINE_AA)  # fmt: skip
    return out


def _watermarked(picture: Picture, rng: Rng) -> Picture:
    height, width = picture.shape[:2]
    mark, scale = np.zeros((height, width), np.uint8), 0.36 * width / 100
    cv2.putText(mark, "(C) studio", (int(0.03 * width), int(0.12 * height)),
                cv2.FONT_HERSHEY_SIMPLEX, scale, 255, max(1, round(scale * 2)),
                cv2.LINE_AA)  # fmt: skip
    share = 0.5 * mark[..., None] / 255
    return np.asarray(np.rint(picture * (1 - share) + 255 * share), np.uint8)


def _tinted(picture: Picture, rng: Rng) -> Picture:
    return np.clip(np.rint(picture * (1.12, 1.0, 0.75)), 0, 255).astype(np.uint8)


def _turned(picture: Picture, rng: Rng) -> Picture:
    return np.ascontiguousarray(np.rot90(picture))


def _sketched(picture: Picture, rng: Rng) -> Picture:
    grey = cv2.cvtColor(np.ascontiguousarray(picture), cv2.COLOR_RGB2GRAY)
    soft = cv2.GaussianBlur(255 - grey, (0, 0), 8)
    drawn = np.clip(grey * 255.0 / (256.0 - soft), 0, 255).astype(np.uint8)
    return np.asarray(cv2.cvtColor(drawn, cv2.COLOR_GRAY2RGB), np.uint8)


def _document(picture: Picture, rng: Rng) -> Picture:
    return page(rng)


def negative(picture: Picture, rng: Rng) -> Picture:
    return np.asarray(255 - picture, np.uint8)


def upside_down(picture: Picture, rng: Rng) -> Picture:
    return np.ascontiguousarray(picture[::-1, ::-1])


PHOTOS, BOTH = ("photographs",), ("photographs", "CIFAR")
PLANTED: Mapping[str, tuple[Sequence[str], Change, float]] = {
    "half of a class with black borders": (BOTH, _framed, 0.5),
    "a date stamp on a class": (BOTH, _dated, 1.0),
    "a watermark on a class": (BOTH, _watermarked, 1.0),
    "a colour cast of a class": (BOTH, _tinted, 1.0),
    "a class turned by 90 degrees": (BOTH, _turned, 1.0),
    "noise of 60 %": (PHOTOS, _mixed_with_noise, 0),
    "sketches": (PHOTOS, _sketched, 0),
    "documents": (PHOTOS, _document, 0),
    "negatives": (PHOTOS, negative, 0),
    "upside down": (PHOTOS, upside_down, 0),
}


def planted_set(name: str, seed: int, real: Path) -> Judged:
    """Return a null set of dealt classes with something planted in it."""
    kinds, change, share = PLANTED[name]
    drawn = judged_set(kinds[seed % len(kinds)], 2 * seed, real, 200)
    rng = np.random.default_rng([seed, 77])
    if share:
        drawn.marked = Counter(drawn.labels).most_common(1)[0][0]
        chosen = [i for i, label in enumerate(drawn.labels) if label == drawn.marked]
        chosen = [i for i in chosen if rng.random() < share or share == 1]
    else:
        chosen = drawn.odd = rng.permutation(len(drawn.pictures))[:3].tolist()
    for i in chosen:
        drawn.pictures[i] = change(drawn.pictures[i], rng)
    return drawn


def _as_opencv(picture: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return a picture as OpenCV writes it: grey, colours, or colours and opacity."""
    if picture.ndim == 2:
        return picture
    swap = cv2.COLOR_RGB2BGR if picture.shape[2] == 3 else cv2.COLOR_RGBA2BGRA
    return np.asarray(cv2.cvtColor(np.ascontiguousarray(picture), swap))


def scanned(drawn: Judged) -> list[dict[str, Any]]:
    """Return the findings of a scan of the set, written as files of numbered names."""
    with tempfile.TemporaryDirectory() as folder:
        for i, picture in enumerate(drawn.pictures):
            place = Path(folder, "set", drawn.splits[i], drawn.labels[i])
            place.mkdir(parents=True, exist_ok=True)
            # photographs stay what they are: JPEG
            ending = ".jpg" if drawn.photographs else ".png"
            cv2.imwrite(str(place / f"{i:05d}{ending}"), _as_opencv(picture))
        run = Path(folder, "run")
        scanning.scan(open_source([str(Path(folder, "set"))]), run, jobs=1)
        with open_run(run) as store:
            sql = "SELECT code, severity, subject, message FROM findings ORDER BY ALL"
            return [{**row, "message": row["message"][:300]} for row in store.rows(sql)]


def judged_as_measured(drawn: Judged) -> list[dict[str, Any]]:
    """Return the findings of DIST and IMG001 to IMG008: no file is written, copies not searched."""
    batch = PictureBatch()
    for i, picture in enumerate(drawn.pictures):
        batch.add(i, Measurable(np.ascontiguousarray(picture), None))
    features, signatures = batch.results()
    hashes = [f"{i:064x}" for i in range(len(drawn.pictures))]
    made = {"format": "PNG", "jpeg_quality": None, "jpeg_subsampling": None}
    rows = [
        {**row, **made, "label": drawn.labels[i], "split": drawn.splits[i], "id": f"/{i:05d}.png",
         "content_hash": hashes[i], "height": drawn.pictures[i].shape[0],
         "width": drawn.pictures[i].shape[1]}
        for i, row in enumerate(pl.DataFrame(features).fill_nan(None).to_dicts())
    ]  # fmt: skip
    wanted = select_checks(["DIST", "IMG"])
    with tempfile.TemporaryDirectory() as folder, case_store(Case("", rows)) as store:
        write_signatures(Path(folder), signature_table(hashes, signatures))
        relate_marks(store, Path(folder))
        return [
            {"code": f.code, "severity": str(f.severity), "subject": f.subject,
             "message": f.message[:300]}
            for check in wanted
            for f in check.find(store, make_params(check, {}))
        ]  # fmt: skip


def untrue(drawn: Judged, found: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the findings that cannot be true; copies are where frames of one scene are."""
    scenes = len(set(drawn.scenes)) < len(drawn.scenes)
    codes = TRUE | TRUE_OF_REAL if drawn.photographs else TRUE
    return [
        one
        for one in found
        if one["code"] not in codes and not (scenes and one["code"][:3] in ("DUP", "SPL"))
    ]


def named(drawn: Judged, found: Sequence[dict[str, Any]]) -> float:
    """Return whether the marked class, or the share of odd pictures, is named by a finding."""
    if drawn.marked:
        wanted = f"class:{drawn.marked}"
        return float(any(f["subject"] == wanted and f["code"] == "DIST004" for f in found))
    subjects = " ".join(f["subject"] for f in found if f["code"].startswith("IMG"))
    return sum(f"/{i:05d}." in subjects for i in drawn.odd) / len(drawn.odd)


@measures(app)
def checks(
    sets: int = 200,
    planted: int = 10,
    first_seed: int = 0,
    results: Path | None = None,
    shard: str = "0/1",
    only: str = "",
    data: Path | None = None,
    seconds: float = 1e9,
    measured: bool = False,
) -> Document:
    """What do all checks say of sets in which nothing is wrong, and of what is planted?

    No set is begun after SECONDS. --measured judges DIST and IMG001 to IMG008 alone, on what is
    measured of pictures in memory: .3 to 1 s a set.
    """
    real = real_data(data, "cifar10-mini.tar")
    # frames of a scene count once where they are found to be copies: not by measured columns alone
    kinds = [kind for kind in WHOLE if kind != "bursts" or not measured]
    jobs = [(kinds[i % len(kinds)], first_seed + i // len(kinds)) for i in range(sets)]
    jobs += [(name, first_seed + seed) for seed in range(planted) for name in PLANTED]
    jobs = [job for job in jobs if any(word in job[0] for word in only.split(","))]
    done = {(row["set"], row["seed"]) for row in saved_rows(results)}
    spent, rows = 0.0, saved_rows(results)
    for name, seed in shard_of(jobs, shard):
        if (name, seed) in done or spent > seconds:
            continue
        with timed() as took:
            drawn = (judged_set if name in WHOLE else planted_set)(name, seed, real)
            found = judged_as_measured(drawn) if measured else scanned(drawn)
        spent += took["wall_s"]
        wrong = untrue(drawn, found)
        rows.append({"set": name, "seed": seed, "n": len(drawn.pictures), "found": found,
                     "untrue": wrong, "named": named(drawn, found) if name in PLANTED else None,
                     "cpu_s": round(took["cpu_s"], 1)})  # fmt: skip
        save_row(results, rows[-1])
        said = ", ".join(f"{f['code']} {f['subject'][:50]}" for f in wrong)
        print(f"{name} {seed} ({took['cpu_s']:.1f} s): {rows[-1]['named']} {said}", flush=True)
    return _summary(saved_rows(results) or rows)


def _summary(rows: Sequence[Document]) -> Document:
    null = [row for row in rows if row["set"] in WHOLE]
    wrong = [row for row in null if row["untrue"]]
    low, high = wilson(len(wrong), max(len(null), 1))
    grave = sum(any(f["severity"] == "error" for f in row["untrue"]) for row in null)
    told = {"null": len(null), "with_untrue": len(wrong), "interval": [float(low), float(high)],
            "with_error": grave,
            "codes": dict(Counter(c for row in wrong for c in {f["code"] for f in row["untrue"]})),
            "kinds": dict(Counter(row["set"] for row in wrong))}  # fmt: skip
    for name in PLANTED:
        hits = [row["named"] for row in rows if row["set"] == name]
        n = len(hits) * (1 if PLANTED[name][2] else 3)
        low, high = wilson(round(sum(hits) * n / max(len(hits), 1)), max(n, 1))
        told[name] = [round(sum(hits), 2), len(hits), round(float(low), 2), round(float(high), 2)]
    return told


# ---- boxes and pictures ----


def annotated_photographs(real: Path) -> tuple[list[Picture], list[list[Any]]]:
    """Return pictures and the corners of their boxes, as shares of the picture."""
    pictures, boxes = [], []
    for path in sorted((real / "raccoon" / "images").glob("*.jpg")):
        root = parse(real / "raccoon" / "annotations" / f"{path.stem}.xml").getroot()
        picture = read_picture(path)
        height, width = picture.shape[:2]
        corners = [[float(box.findtext(n, "0")) for n in ("xmin", "ymin", "xmax", "ymax")]
                   for box in root.iter("bndbox")]  # fmt: skip
        pictures.append(picture)
        boxes.append([(a / width, b / height, c / width, d / height) for a, b, c, d in corners])
    return pictures, boxes


def drawn_scenes(rng: Rng, n: int) -> tuple[list[Picture], list[list[Any]]]:
    """Draw objects of 12 classes (a shape, a colour) on grounds that vary."""
    pictures, boxes = [], []
    inks = [colour(rng, 20, 235) for _ in range(12)]
    for _ in range(n):
        ground = np.array(colour(rng, 60, 200)) + 30 * field_of(rng, 200, 6)[..., None]
        board, here = np.clip(ground, 0, 255).astype(np.uint8), []
        for _ in range(int(rng.integers(1, 5))):
            kind, w, h = int(rng.integers(12)), *(int(v) for v in rng.integers(30, 90, 2))
            x, y = int(rng.integers(0, 200 - w)), int(rng.integers(0, 200 - h))
            if kind % 3 == 0:
                cv2.ellipse(board, (x + w // 2, y + h // 2), (w // 2, h // 2), 0, 0, 360,
                            inks[kind], -1)  # fmt: skip
            elif kind % 3 == 1:
                cv2.rectangle(board, (x, y), (x + w, y + h), inks[kind], -1)
            else:
                at = np.array([(x, y + h), (x + w // 2, y), (x + w, y + h)])
                cv2.fillPoly(board, [at], inks[kind])
            here.append((x / 200, y / 200, (x + w) / 200, (y + h) / 200))
        pictures.append(noisy(board, rng, 6.0))
        boxes.append(here)
    return pictures, boxes


DISPLACED: Mapping[str, Callable[[npt.NDArray[Any], npt.NDArray[Any], int], Any]] = {
    "as they lie": lambda at, box, n: (at, box),
    "mirrored": lambda at, box, n: (at, np.stack([32 - box[:, 2], box[:, 1], 32 - box[:, 0],
                                                  box[:, 3]], 1)),
    "upside down": lambda at, box, n: (at, np.stack([box[:, 0], 32 - box[:, 3], box[:, 2],
                                                     32 - box[:, 1]], 1)),
    "of the next picture": lambda at, box, n: ((at + 1) % n, box),
    "moved right by 6 %": lambda at, box, n: (at, box + np.array([2, 0, 2, 0])),
    "moved down by 12 %": lambda at, box, n: (at, box + np.array([0, 4, 0, 4])),
    "moved left and up by 12 %": lambda at, box, n: (at, box - 4),
    "twice too large": lambda at, box, n: (at, box + (box[:, [2, 3, 0, 1]] - box) * (-0.5)),
}  # fmt: skip


def _box_sets(
    data: Path | None, sets: int, first_seed: int
) -> Iterator[tuple[str, npt.NDArray[Any], npt.NDArray[Any], npt.NDArray[Any], int]]:
    """Yield a kind of set, summed planes, the picture of each box, boxes in cells, pictures."""
    photos = annotated_photographs(real_data(data, "raccoon"))
    table = stack_signatures([make_signature(feature_picture(p)) for p in photos[0]])
    for kind in ("photographs", "drawn"):
        for seed in range(first_seed, first_seed + sets):
            rng = np.random.default_rng([seed, 5])
            if kind == "drawn":
                drawn, where = drawn_scenes(rng, 100)
                chosen = stack_signatures([make_signature(p) for p in drawn])
            else:
                some = np.sort(rng.permutation(len(table))[: len(table) // 2])
                chosen, where = table[some], [photos[1][i] for i in some]
            sums = integral_planes(chosen["grey"], chosen["colour"])
            at = np.repeat(np.arange(len(where)), [len(one) for one in where])
            corners = np.array([box for one in where for box in one])
            size, trim = (chosen[f][at].astype(float) for f in ("size", "trim"))
            kept = np.tile(size - trim[:, :2] - trim[:, 2:], 2)
            cells = 32 * (corners * np.tile(size, 2) - np.tile(trim[:, :2], 2)) / kept
            large = (cells[:, 2:] - cells[:, :2]).min(1) >= 4
            yield kind, sums, at[large], cells[large], len(where)


def _counted(hits: Mapping[str, list[str]]) -> Document:
    told: Document = {}
    for name, said in hits.items():
        low, high = wilson(sum(map(bool, said)), len(said))
        told[name] = {"found": sum(map(bool, said)), "of": len(said), "as": dict(Counter(said)),
                      "interval": [round(float(low), 3), round(float(high), 3)]}  # fmt: skip
        print(f"{name}: {told[name]}", flush=True)
    return told


@measures(app)
def boxes(sets: int = 100, first_seed: int = 0, data: Path | None = None) -> Document:
    """Are boxes that lie right called wrong, and those that do not found?"""
    hits: dict[str, list[str]] = {}
    for kind, sums, at, cells, n in _box_sets(data, sets, first_seed):
        for name, displace in DISPLACED.items():
            moved_at, moved = displace(at, cells, n)
            gains = gains_elsewhere(sums, moved_at, moved)
            best = max(better_elsewhere(gains, moved_at), key=lambda one: one.z)
            enough = best.z >= ShiftedClass.Params().min_z and best.share > 0.5
            hits.setdefault(f"{kind}: {name}", []).append(best.name if enough else "")
    return _counted(hits)


if __name__ == "__main__":
    app()
