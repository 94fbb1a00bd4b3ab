"""Further kinds of pictures that people have, in sets in which nothing is wrong.

    python benchmarks/null_kinds.py count [--sets 130] [--first-seed 9000] [--results F.jsonl]
        [--shard 0/2] [--only WORD,...] [--data ../shared/data]
    python benchmarks/null_kinds.py planted [--sets 3] [--first-seed 9000] [--results F.jsonl]
    python benchmarks/null_kinds.py sheet KIND SEED FILE.jpg [--at 3,17,200]

`count` scans whole datasets with all checks and writes what they say, to be judged by eye: which of
it is true is not known beforehand, but what `TRUE` of null_pictures.py names. 200 to 400 pictures
in 2 to 12 classes, of one size or not, without splits, with two or with three. Where a kind has
classes of its own, every other set keeps them; else they are dealt at random. `sheet` shows the
first 48 pictures of a set, or those that are named.
"""

from __future__ import annotations

import io
import tarfile
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import numpy.typing as npt
from bench import (
    Document,
    Picture,
    hall,
    measures,
    real_data,
    save_row,
    saved_rows,
    shard_of,
    timed,
)
from null_pictures import (
    CLASSES,
    Judged,
    Rng,
    between,
    colour,
    field_of,
    named,
    negative,
    noisy,
    real_pictures,
    scanned,
    untrue,
    upside_down,
    words,
)
from PIL import Image, ImageDraw, ImageFont

app = hall(__doc__)
Board = npt.NDArray[Any]
# A picture and the class that it has by its content ("" where a kind has none).
Drawn = tuple[Picture, str]
NAMES = (*CLASSES, "gnu", "hen", "ibis", "jay", "kite", "lynx")


def _photograph(rng: Rng, real: Path, least: int = 0) -> Picture:
    """Return a part of a real photograph, at least so many pixels wide and high."""
    found = real_pictures(real, "photographs")[0]
    picture = found[int(rng.integers(len(found)))]
    h, w = picture.shape[:2]
    share = between(rng, 0.5, 0.9)
    y, x = int(between(rng, 0, (1 - share) * h)), int(between(rng, 0, (1 - share) * w))
    part = picture[y : y + int(share * h), x : x + int(share * w)]
    scale = max(1.0, least / min(part.shape[:2]))
    size = int(part.shape[1] * scale) + 1, int(part.shape[0] * scale) + 1
    return np.asarray(cv2.resize(part, size) if scale > 1 else part, np.uint8)


def thermal(style: Rng, real: Path) -> Callable[[Rng], Drawn]:
    """A camera of heat: warm people before a cold ground, stripes of the sensor, one palette."""
    palette = int(style.choice([cv2.COLORMAP_INFERNO, cv2.COLORMAP_JET, -1]))
    stripes = style.normal(0, 1.5, 160)

    def draw(rng: Rng) -> Drawn:
        h, w, people = 120, 160, int(rng.integers(0, 4))
        heat = between(rng, 50, 90) + 8 * cv2.resize(field_of(rng, 160, 5), (w, h))
        heat[: int(rng.integers(20, 60))] -= between(rng, 5, 25)
        for _ in range(people):
            x, y, size = between(rng, 15, 145), between(rng, 50, 100), between(rng, 8, 22)
            warm = between(rng, 150, 210)
            cv2.ellipse(heat, (int(x), int(y)), (int(size / 2), int(size)), 0, 0, 360, warm, -1)
            cv2.circle(heat, (int(x), int(y - 1.2 * size)), int(size / 3) + 1, warm + 20, -1)
        heat = cv2.GaussianBlur(heat, (0, 0), 1.3) + stripes + rng.normal(0, 1.5, (h, w))
        grey = np.clip(heat, 0, 255).astype(np.uint8)
        shown = cv2.applyColorMap(grey, palette) if palette >= 0 else cv2.merge([grey] * 3)
        return np.asarray(shown[..., ::-1], np.uint8), "person" if people else "empty"

    return draw


def histology(style: Rng, real: Path) -> Callable[[Rng], Drawn]:
    """Stained tissue of a few slides: fibres, nuclei, gaps; dense and sparse."""
    slides = [(colour(style, 190, 235), colour(style, 70, 130)) for _ in range(5)]

    def draw(rng: Rng) -> Drawn:
        s, dense = 224, bool(rng.random() < 0.5)
        (r, _, b), (r2, g2, _) = slides[int(rng.integers(5))]
        fibre, wide = field_of(rng, s, 30), field_of(rng, s, 4)
        tissue = np.stack([r + 0 * wide, 130 + 18 * wide + 12 * fibre, b - 15 + 8 * fibre], -1)
        tissue[wide > between(rng, 1.2, 2.2)] = (242, 238, 243)
        for _ in range(int(rng.integers(150, 260) if dense else rng.integers(25, 90))):
            at = tuple(int(v) for v in rng.integers(0, s, 2))
            size = tuple(int(v) for v in rng.integers(3, 8, 2))
            ink = np.array((r2, g2 / 2, 140)) + rng.normal(0, 12, 3)
            cv2.ellipse(tissue, at, size, between(rng, 0, 180), 0, 360, ink.tolist(), -1)
        soft = cv2.GaussianBlur(tissue, (0, 0), 0.9)
        return noisy(soft, rng, 3.0), "dense" if dense else "sparse"

    return draw


def _outline(rng: Rng, kind: int) -> Board:
    """Return the corners of a product of a kind, in shares of its box."""
    turn = np.linspace(0, 2 * np.pi, 60)
    neck, body = between(rng, 0.1, 0.2), between(rng, 0.3, 0.4)
    shapes = [
        [(0.5 - neck, 0), (0.5 + neck, 0), (0.5 + neck, 0.25), (0.5 + body, 0.4), (0.5 + body, 1),
         (0.5 - body, 1), (0.5 - body, 0.4), (0.5 - neck, 0.25)],
        [(0, 0.2), (1, 0.2), (1, 0.85), (0, 0.85)],
        np.stack([0.5 + 0.48 * np.cos(turn), 0.5 + 0.48 * np.sin(turn)], 1).tolist(),
        [(0, 0.5), (0.3, 0.45), (0.45, 0.1), (0.75, 0.1), (0.75, 0.5), (1, 0.7), (1, 0.85),
         (0, 0.85)],
        [(0.2, 0), (0.4, 0.1), (0.6, 0.1), (0.8, 0), (1, 0.3), (0.8, 0.4), (0.8, 1), (0.2, 1),
         (0.2, 0.4), (0, 0.3)],
    ]  # fmt: skip
    return np.array(shapes[kind]) + rng.normal(0, 0.01, (len(shapes[kind]), 2))


def products(style: Rng, real: Path) -> Callable[[Rng], Drawn]:
    """Things on white as a shop shows them: bottle, box, disc, shoe, shirt, with a shadow."""
    names = ("bottle", "box", "disc", "shoe", "shirt")

    def draw(rng: Rng) -> Drawn:
        s, kind = 480, int(rng.integers(5))
        skin = cv2.resize(_photograph(rng, real, 64), (s, s)).astype(np.float64)
        if rng.random() < 0.6:
            skin = 0.25 * skin + 0.75 * np.array(colour(rng, 20, 235))
        skin *= (1 + between(rng, -0.3, 0.3) * np.linspace(-1, 1, s))[None, :, None]
        size, at = between(rng, 260, 400), rng.uniform(20, 70, 2)
        corners = (_outline(rng, kind) * size + at).astype(np.int32)
        cover, shadow = np.zeros((2, s, s), np.float64)
        cv2.fillPoly(cover, [corners], 1.0, cv2.LINE_AA)
        low = int(corners[:, 1].max()), int(corners[:, 0].mean())
        cv2.ellipse(shadow, (low[1], low[0]), (int(size * 0.4), 12), 0, 0, 360, 0.4, -1)
        ground = 254 * (1 - cv2.GaussianBlur(shadow, (0, 0), 9)[..., None])
        board = ground * (1 - cover[..., None]) + skin * cover[..., None]
        return np.clip(board, 0, 255).astype(np.uint8), names[kind]

    return draw


def heartbeats(style: Rng, real: Path) -> Callable[[Rng], Drawn]:
    """Strips of an electrocardiogram on ruled paper, as one device plots them."""
    paper, rule = colour(style, 240, 256), (240, 190, 190)
    ink = colour(style, 0, 70)

    def draw(rng: Rng) -> Drawn:
        w, h, uneven = 600, 240, bool(rng.random() < 0.5)
        board = np.full((h, w, 3), paper, np.uint8)
        for x in range(0, w, 12):
            board[:, x] = rule
        for y in range(0, h, 12):
            board[y] = rule
        time, level = np.arange(w), np.zeros(w)
        beat, gap = between(rng, 0, 60), between(rng, 45, 95)
        high = between(rng, 50, 90)
        while beat < w:
            for centre, wide, rise in ((-14, 5, 8), (-2, 1.5, -8), (0, 1.8, high), (3, 1.6, -14),
                                       (20, 8, 14)):  # fmt: skip
                level += rise * np.exp(-(((time - beat - centre) / wide) ** 2))
            beat += gap * (between(rng, 0.6, 1.5) if uneven else between(rng, 0.97, 1.03))
        level += 4 * np.sin(time / between(rng, 40, 120)) + rng.normal(0, 0.8, w)
        path = np.stack([time, 160 - level], 1).astype(np.int32).reshape(-1, 1, 2)
        cv2.polylines(board, [path], False, ink, 1, cv2.LINE_AA)
        return board, "uneven" if uneven else "even"

    return draw


def handwriting(style: Rng, real: Path) -> Callable[[Rng], Drawn]:
    """Lines of joined script of four hands on paper, each line as wide as its text."""
    hands = [(between(style, 0.2, 0.7), between(style, 1.5, 3.5), colour(style, 10, 90))
             for _ in range(4)]  # fmt: skip

    def draw(rng: Rng) -> Drawn:
        hand = int(rng.integers(4))
        slant, pen, ink = hands[hand]
        letters = int(rng.integers(20, 55))
        w, h = 14 * letters + 30, 64
        board = np.full((h, w, 3), between(rng, 225, 250), np.float64)
        board += 3 * cv2.resize(field_of(rng, 64, 4), (w, h))[..., None]
        x = 12.0
        for _ in range(letters):
            if rng.random() < 0.17:
                x += 14
                continue
            turn = np.linspace(0, 2 * np.pi, 14)
            tall = between(rng, 7, 11) * (1.9 if rng.random() < 0.25 else 1)
            up = 36 - tall / 2 + between(rng, 2, 5) * np.sin(turn + between(rng, 0, 6))
            ys = up - tall / 2 * np.sin(turn * rng.choice([1, 1.5, 2]))
            xs = x + 14 * turn / 6.28 + 3 * np.cos(turn * 2) + slant * (36 - ys) * 0.6
            path = np.stack([xs, ys], 1).astype(np.int32).reshape(-1, 1, 2)
            cv2.polylines(board, [path], False, ink, round(pen), cv2.LINE_AA)
            x += 14
        return noisy(cv2.GaussianBlur(board, (0, 0), 0.6), rng, 2.5), f"hand {hand}"

    return draw


def night(style: Rng, real: Path) -> Callable[[Rng], Drawn]:
    """Photographs of the night: little light, lamps, grain of a high sensitivity."""

    def draw(rng: Rng) -> Drawn:
        picture = _photograph(rng, real, 160).astype(np.float64) / 255
        h, w = picture.shape[:2]
        dark = picture ** between(rng, 1.6, 2.4) * between(rng, 0.15, 0.45)
        glow = np.zeros((h, w), np.float64)
        for _ in range(int(rng.integers(0, 9))):
            at = int(between(rng, 0, w)), int(between(rng, 0, 0.7 * h))
            cv2.circle(glow, at, int(between(rng, 1, 0.02 * w) + 1), 6.0, -1)
        halo = cv2.GaussianBlur(glow, (0, 0), 0.02 * w + 1) + np.minimum(glow, 1)
        dark += halo[..., None] * np.array((1.0, 0.85, 0.55))
        grain = rng.normal(0, between(rng, 0.008, 0.025), dark.shape)
        return np.clip(255 * (dark + grain), 0, 255).astype(np.uint8), ""

    return draw


def watched_place(style: Rng, real: Path) -> Callable[[Rng], Drawn]:
    """Frames of one fixed camera over days: its clock, the light of the hour, who passes."""
    ground = cv2.resize(_photograph(style, real, 240), (640, 360)).astype(np.float64)

    def draw(rng: Rng) -> Drawn:
        hour = between(rng, 0, 24)
        light = 0.25 + 0.85 * max(0.0, np.sin((hour - 5) / 14 * np.pi))
        board, passing = ground.copy(), int(rng.integers(0, 3))
        for _ in range(passing):
            wide, high = int(between(rng, 50, 160)), int(between(rng, 40, 120))
            x, y = int(between(rng, 0, 640 - wide)), int(between(rng, 120, 355 - high))
            part = cv2.resize(_photograph(rng, real), (wide, high))
            board[y : y + high, x : x + wide] = part
        board = np.clip(board * light + rng.normal(0, 2 + 4 * (1 - light), board.shape), 0, 255)
        text = (
            f"CAM 03  2024-05-{int(rng.integers(1, 31)):02}  {int(hour):02}:{rng.integers(60):02}"
        )
        shown = board.astype(np.uint8)
        cv2.putText(shown, text, (8, 20), cv2.FONT_HERSHEY_SIMPLEX, 0.5, (255,) * 3, 1, cv2.LINE_AA)
        return shown, "passing" if passing else "quiet"

    return draw


def comics(style: Rng, real: Path) -> Callable[[Rng], Drawn]:
    """Printed panels: few flat colours, dots of a screen, black outlines, a balloon."""
    gap = int(style.integers(4, 7))

    def draw(rng: Rng) -> Drawn:
        picture = cv2.resize(_photograph(rng, real, 200), (320, int(rng.integers(240, 400))))
        h, w = picture.shape[:2]
        soft = cv2.bilateralFilter(picture, 9, 60, 9)
        grey = cv2.cvtColor(soft, cv2.COLOR_RGB2GRAY).astype(np.float64) / 255
        flat = (np.rint(soft / 255.0 * 3) / 3 * 0.5 + 0.5) * 255
        y, x = np.mgrid[:h, :w]
        dots = (np.cos(np.pi * (x + y) / gap) + np.cos(np.pi * (x - y) / gap)) / 4 + 0.5
        flat[dots > grey + 0.35] *= 0.55
        lines = cv2.medianBlur((grey * 255).astype(np.uint8), 3)
        mean = cv2.blur(lines, (11, 11))
        flat[lines < mean.astype(np.int32) - 7] = 15
        sheet = Image.fromarray(flat.astype(np.uint8))
        pen = ImageDraw.Draw(sheet)
        if rng.random() < 0.5:
            left = int(rng.integers(5, 150))
            pen.ellipse((left, 8, left + 150, 62), "white", "black", 2)
            pen.text((left + 26, 26), words(rng, 1, 3).upper(), "black", ImageFont.load_default(13))
        pen.rectangle((0, 0, w - 1, h - 1), outline="black", width=4)
        return np.asarray(sheet, np.uint8), ""

    return draw


def maps(style: Rng, real: Path) -> Callable[[Rng], Drawn]:
    """Tiles of a street map of one style: blocks, roads, parks, water, names."""
    ground, park, water = (242, 239, 233), (200, 225, 180), (170, 211, 223)
    roads = [((255, 255, 255), 5), ((252, 214, 164), 9)]

    def draw(rng: Rng) -> Drawn:
        s = 256
        board = np.full((s, s, 3), ground, np.uint8)
        wet = bool(rng.random() < 0.4)
        board[field_of(rng, s, 3) > between(rng, 0.9, 2.0)] = park
        if wet:
            board[field_of(rng, s, 2) > between(rng, 0.7, 1.4)] = water
        for _ in range(int(rng.integers(5, 22))):
            x, y = (int(v) for v in rng.integers(0, s, 2))
            cv2.rectangle(
                board, (x, y), (x + int(rng.integers(8, 26)), y + 12), (217, 208, 201), -1
            )
        for _ in range(int(rng.integers(4, 13))):
            ink, wide = roads[int(rng.random() < 0.25)]
            start, end = rng.integers(-60, 316, (2, 2)).tolist()
            cv2.line(board, start, end, (200, 195, 190), wide + 2, cv2.LINE_AA)
            cv2.line(board, start, end, ink, wide, cv2.LINE_AA)
        sheet = Image.fromarray(board)
        for _ in range(int(rng.integers(0, 4))):
            at = int(rng.integers(0, 180)), int(rng.integers(0, 240))
            ImageDraw.Draw(sheet).text(at, words(rng, 1, 2).title(), (80, 80, 90),
                                       ImageFont.load_default(12))  # fmt: skip
        return np.asarray(sheet, np.uint8), "water" if wet else "land"

    return draw


def depths(style: Rng, real: Path) -> Callable[[Rng], Drawn]:
    """Depth of rooms in millimetres, 16 bits: floor, walls, boxes, holes without an answer."""

    def draw(rng: Rng) -> Drawn:
        h, w = 240, 320
        rows = np.linspace(-1, 1, h)[:, None]
        far = between(rng, 2500, 5000)
        depth = np.minimum(far, 1400 / np.maximum(rows + 0.05, 0.05)) + 0 * np.zeros((h, w))
        depth += between(rng, -900, 900) * np.linspace(-1, 1, w)
        things = int(rng.integers(0, 5))
        for _ in range(things):
            x, y = int(rng.integers(0, 280)), int(rng.integers(60, 200))
            wide, high = (int(v) for v in rng.integers(25, 110, 2))
            near = between(rng, 800, far)
            part = depth[y : y + high, x : x + wide]
            np.minimum(part, near, out=part)
        holes = cv2.resize(field_of(rng, 320, 40), (w, h)) > between(rng, 1.7, 2.6)
        depth = np.rint(depth + rng.normal(0, 6, (h, w)))
        depth[holes] = 0
        return np.clip(depth, 0, 65535).astype(np.uint16), "full" if things > 1 else "bare"

    return draw


def parcels(style: Rng, real: Path) -> Callable[[Rng], Drawn]:
    """Labels of parcels with bars or a square code, photographed askew on cardboard."""
    shop = words(style, 1, 2).upper()

    def draw(rng: Rng) -> Drawn:
        square = bool(rng.random() < 0.5)
        sheet = Image.new("RGB", (360, 260), (250, 250, 248))
        pen = ImageDraw.Draw(sheet)
        pen.text((14, 10), shop, "black", ImageFont.load_default(26))
        for k in range(4):
            pen.text((14, 50 + 20 * k), words(rng, 2, 4).title(), 0, ImageFont.load_default(15))
        if square:
            cells = np.kron(rng.integers(0, 2, (25, 25)), np.ones((4, 4)))
            sheet.paste(Image.fromarray((255 * cells).astype(np.uint8)), (230, 120))
        else:
            x = 30
            while x < 320:
                wide = int(rng.integers(1, 4))
                pen.rectangle((x, 150, x + wide - 1, 225), "black")
                x += wide + int(rng.integers(1, 4))
        pen.text((40, 232), str(rng.integers(10**11, 10**12)), 0, ImageFont.load_default(16))
        board = np.empty((360, 480, 3), np.float32)
        board[:] = np.array((176, 140, 100)) + rng.normal(0, 6, 3)
        board += 7 * cv2.resize(field_of(rng, 480, 60), (480, 360))[..., None]
        start = np.array([(0, 0), (360, 0), (360, 260), (0, 260)], np.float32)
        end = (start + np.array((60, 50)) + rng.normal(0, 14, (4, 2))).astype(np.float32)
        move = cv2.getPerspectiveTransform(start, end)
        cv2.warpPerspective(np.asarray(sheet, np.float32), move, (480, 360), board, cv2.INTER_AREA,
                            cv2.BORDER_TRANSPARENT)  # fmt: skip
        lit = board * (1 + 0.15 * cv2.resize(field_of(rng, 480, 2), (480, 360))[..., None])
        return noisy(lit * between(rng, 0.6, 1.0), rng, 3.0), "square" if square else "bars"

    return draw


def sprites(style: Rng, real: Path) -> Callable[[Rng], Drawn]:
    """Pixel art of 48 px with a transparent ground: mirrored blocks in few colours."""
    palette = [colour(style) for _ in range(8)]

    def draw(rng: Rng) -> Drawn:
        half = rng.random((12, 6)) < between(rng, 0.4, 0.6)
        inks = rng.integers(0, 3, (12, 6))
        chosen = np.array([palette[int(i)] for i in rng.choice(8, 3, replace=False)])
        left = np.concatenate([chosen[inks], 255 * half[..., None]], -1)
        left[~half] = 0
        whole = np.concatenate([left, left[:, ::-1]], 1)
        board = np.kron(whole, np.ones((4, 4, 1)))
        return board.astype(np.uint8), ""

    return draw


def plates(style: Rng, real: Path) -> Callable[[Rng], Drawn]:
    """Crops of number plates from one camera: small, of many widths, sharp and not."""

    def draw(rng: Rng) -> Drawn:
        sheet = Image.new("RGB", (260, 60), (235, 235, 228))
        pen = ImageDraw.Draw(sheet)
        text = "".join(chr(int(c)) for c in rng.integers(65, 91, 3)) + f" {rng.integers(100, 9999)}"
        pen.text((22, 6), text, (25, 25, 30), ImageFont.load_default(42))
        pen.rectangle((0, 0, 259, 59), outline=(20, 20, 20), width=3)
        pen.rectangle((2, 2, 16, 57), (30, 60, 160))
        far = between(rng, 60, 180)
        size = int(far), max(16, int(far * between(rng, 0.2, 0.32)))
        small = cv2.resize(np.asarray(sheet, np.float64), size, interpolation=cv2.INTER_AREA)
        small = cv2.GaussianBlur(small, (0, 0), between(rng, 0.4, 1.4)) * between(rng, 0.35, 1.05)
        return noisy(small, rng, between(rng, 1, 6)), ""

    return draw


def letterboxed(style: Rng, real: Path) -> Callable[[Rng], Drawn]:
    """Photographs in a square of 416 px as a detector is fed them: grey bars fill the rest."""

    def draw(rng: Rng) -> Drawn:
        picture = _photograph(rng, real)
        scale = 416 / max(picture.shape[:2])
        size = [max(1, round(n * scale)) for n in picture.shape[1::-1]]
        board = np.full((416, 416, 3), 114, np.uint8)
        y, x = (416 - size[1]) // 2, (416 - size[0]) // 2
        board[y : y + size[1], x : x + size[0]] = cv2.resize(picture, size)
        return board, ""

    return draw


def shelves(style: Rng, real: Path) -> Callable[[Rng], Drawn]:
    """Boards of a shop full of goods of 30 kinds, side by side, price tags below; gaps or none."""
    goods = [cv2.resize(_photograph(style, real), (60, 90)) for _ in range(30)]
    board_ink, tag = colour(style, 120, 220), colour(style, 200, 256)

    def draw(rng: Rng) -> Drawn:
        w, h, gaps = 480, 360, bool(rng.random() < 0.5)
        board = np.full((h, w, 3), colour(rng, 30, 80), np.uint8)
        for y in range(int(rng.integers(0, 20)), h, 120):
            x = -int(rng.integers(0, 60))
            while x < w:
                one, wide = goods[int(rng.integers(30))], int(rng.integers(36, 64))
                tall = int(rng.integers(70, 98))
                facing = np.tile(cv2.resize(one, (wide, tall)), (1, int(rng.integers(1, 5)), 1))
                if not (gaps and rng.random() < 0.25):
                    left, right = max(x, 0), max(0, min(x + facing.shape[1], w))
                    low = min(y + 100, h)
                    cut = facing[: max(0, low - y - 100 + tall), left - x : right - x]
                    board[y + 100 - tall : y + 100 - tall + len(cut), left:right] = cut
                x += facing.shape[1] + int(rng.integers(0, 6))
            board[y + 100 : y + 116] = board_ink
            for left in range(int(rng.integers(0, 50)), w, 70):
                board[y + 102 : y + 114, left : left + 28] = tag
        light = between(rng, 0.7, 1.1) * (1 + 0.1 * np.linspace(-1, 1, w) * rng.normal())
        soft = cv2.GaussianBlur(board, (0, 0), between(rng, 0.4, 1.0)) * light[None, :, None]
        return noisy(soft, rng, between(rng, 1, 4)), "gaps" if gaps else "full"

    return draw


def retinas(style: Rng, real: Path) -> Callable[[Rng], Drawn]:
    """The back of an eye: an orange disc on black with a nerve head, vessels, bright lesions."""

    def branch(rng: Rng, board: Board, at: Board, way: float, wide: float) -> None:
        for _ in range(int(rng.integers(8, 20))):
            way += rng.normal(0, 0.18)
            end = at + 9 * np.array((np.cos(way), np.sin(way)))
            ends = [tuple(int(4 * v) for v in point) for point in (at, end)]
            cv2.line(board, *ends, 1.0, max(1, round(wide)), cv2.LINE_AA, 2)
            at = end
            if wide > 1.5 and rng.random() < 0.22:
                branch(rng, board, at, way + rng.choice([-0.6, 0.6]), wide - 1)

    def draw(rng: Rng) -> Drawn:
        s, ill = 256, bool(rng.random() < 0.4)
        y, x = np.mgrid[:s, :s] - s / 2
        vessels = np.zeros((s, s))
        head = np.array((rng.choice([0.3, 0.7]) * s, s / 2 + rng.normal(0, 8)))
        for way in (0.9, 2.2, -0.9, -2.2, *rng.uniform(0, 6, 3)):
            branch(rng, vessels, head, way, between(rng, 2, 4))
        tone = between(rng, 0.8, 1.1) + 0.06 * field_of(rng, s, 5) - 0.3 * (x**2 + y**2) / s**2
        eye = tone[..., None] * np.array((205, 105 + rng.normal(0, 8), 50 + rng.normal(0, 8)))
        eye *= 1 - 0.35 * cv2.GaussianBlur(vessels, (0, 0), 0.8)[..., None]
        cv2.circle(eye, [int(v) for v in head], 17, (245, 205, 130), -1, cv2.LINE_AA)
        for _ in range(int(rng.integers(4, 30)) if ill else 0):
            at = [int(v) for v in rng.integers(60, 196, 2)]
            ink = (240, 220, 120) if rng.random() < 0.6 else (120, 30, 20)
            cv2.circle(eye, at, int(rng.integers(1, 5)), ink, -1, cv2.LINE_AA)
        eye = cv2.GaussianBlur(eye, (0, 0), between(rng, 0.6, 1.5))
        eye[x**2 + y**2 > (0.47 * s) ** 2] = 0
        return noisy(eye, rng, 2.0), "ill" if ill else "sound"

    return draw


def dash(style: Rng, real: Path) -> Callable[[Rng], Drawn]:
    """Roads from one car, whose bonnet stands in each frame; a car ahead or none."""
    bonnet, at = colour(style, 20, 120), int(style.integers(190, 215))
    shine = cv2.resize(_photograph(style, real), (448, 64)).astype(np.float64)

    def draw(rng: Rng) -> Drawn:
        w, h, ahead = 448, 252, bool(rng.random() < 0.5)
        board = cv2.resize(_photograph(rng, real, 100), (w, h)).astype(np.float64)
        grey, mid = between(rng, 70, 130), int(w / 2 + rng.normal(0, 25))
        sky = int(rng.integers(95, 125))
        cv2.fillPoly(board, [np.array([(mid - 8, sky), (mid + 8, sky), (w + 90, h), (-90, h)])],
                     (grey,) * 3)  # fmt: skip
        for k in range(6):
            near = (k + between(rng, 0, 0.5)) / 6
            y = int(sky + near**2 * (h - sky))
            cv2.line(board, (mid, y), (mid, y + 3 + int(12 * near)), (220,) * 3, 1 + int(5 * near))
        if ahead:
            size = int(rng.integers(24, 80))
            part = cv2.resize(_photograph(rng, real), (size, int(0.7 * size)))
            x, y = mid - size // 2 + int(rng.integers(-40, 40)), sky
            board[y : y + len(part), x : x + size] = part
        board = board * between(rng, 0.6, 1.15) + rng.normal(0, 3, board.shape)
        hood = np.zeros((h, w), np.float64)
        cv2.ellipse(hood, (w // 2, h + 40), (w // 2 + 30, h + 40 - at), 0, 0, 360, 1.0, -1)
        cover = np.tile(np.array(bonnet, np.float64), (h, w, 1))
        cover[-64:] = 0.8 * cover[-64:] + 0.2 * shine
        board = board * (1 - hood[..., None]) + cover * hood[..., None]
        return np.clip(board, 0, 255).astype(np.uint8), "ahead" if ahead else "free"

    return draw


def fisheye(style: Rng, real: Path) -> Callable[[Rng], Drawn]:
    """Photographs through a lens that sees half a sphere: a bent round picture on black."""
    s, power = 320, between(style, 1.3, 2.0)
    y, x = (np.mgrid[:s, :s] - s / 2) / (0.47 * s)
    r = np.hypot(x, y)
    bent = np.maximum(r, 1e-6) ** (power - 1)

    def draw(rng: Rng) -> Drawn:
        picture = _photograph(rng, real, 200)
        h, w = picture.shape[:2]
        across, down = (x * bent + 1) * (w - 1) / 2, (y * bent + 1) * (h - 1) / 2
        board = cv2.remap(picture, across.astype(np.float32), down.astype(np.float32), 1)
        board = board * np.clip((1 - r) * 40, 0, 1)[..., None] * (1 - 0.25 * r[..., None] ** 2)
        return noisy(np.maximum(board, 2), rng, 1.0), ""

    return draw


def slips(style: Rng, real: Path) -> Callable[[Rng], Drawn]:
    """Slips of three shops, each photographed by hand on some table, turned a little."""
    shops = [(words(style, 1, 2).upper(), int(style.integers(12, 18))) for _ in range(3)]

    def draw(rng: Rng) -> Drawn:
        shop = int(rng.integers(3))
        name, size = shops[shop]
        lines = int(rng.integers(4, 18))
        paper = Image.new("L", (220, 110 + 20 * lines), int(rng.integers(225, 250)))
        pen = ImageDraw.Draw(paper)
        pen.text((40, 14), name, 30, ImageFont.load_default(size + 8))
        for k in range(lines):
            pen.text((12, 60 + 20 * k), words(rng, 1, 2), 60, ImageFont.load_default(size - 2))
            price = f"{rng.integers(0, 90)}.{rng.integers(0, 99):02}"
            pen.text((170, 60 + 20 * k), price, 60, ImageFont.load_default(size - 2))
        pen.text((12, 80 + 20 * lines), f"TOTAL {rng.integers(9, 400)}.00", 20,
                 ImageFont.load_default(size + 2))  # fmt: skip
        w, h = 360, 480
        table = cv2.GaussianBlur(cv2.resize(_photograph(rng, real), (w, h)), (0, 0), 4)
        scale = between(rng, 0.75, 1.0) * min(1.2, 420 / paper.height)
        turn = cv2.getRotationMatrix2D((110, paper.height / 2), rng.normal(0, 6), scale)
        turn[:, 2] += (w / 2 - 110 + rng.normal(0, 12), h / 2 - paper.height / 2)
        shown = cv2.warpAffine(np.asarray(paper), turn, (w, h)).astype(np.float64)[..., None]
        cover = cv2.warpAffine(np.ones((paper.height, 220)), turn, (w, h))[..., None]
        shade = between(rng, 0.6, 1.0) + 0.08 * cv2.resize(field_of(rng, 64, 2), (w, h))[..., None]
        board = table * 0.6 * (1 - cover) + shown * shade * cover
        return noisy(board, rng, between(rng, 1, 4)), f"shop {shop}"

    return draw


def sonar(style: Rng, real: Path) -> Callable[[Rng], Drawn]:
    """Sound from the ground of a lake: a dark middle, speckle, ripples, things with a shadow."""
    ink = np.array([(255, 190, 110), (255, 255, 255)][int(style.integers(2))]) / 255

    def draw(rng: Rng) -> Drawn:
        h, w, thing = 300, 400, bool(rng.random() < 0.4)
        ground = 90 + 25 * cv2.resize(field_of(rng, 200, 5), (w, h))
        y, x = np.mgrid[:h, :w]
        away = np.abs(x - w / 2) / (w / 2)
        wave = np.sin(x / between(rng, 4, 10) + y / between(rng, 8, 40)
                      + 2 * field_of(rng, 400, 4)[:h])  # fmt: skip
        ground += between(rng, 0, 22) * wave * (cv2.resize(field_of(rng, 100, 3), (w, h)) > 0)
        if thing:
            side, size = rng.choice([-1, 1]), int(rng.integers(6, 20))
            at = int(w / 2 + side * between(rng, 60, 150)), int(rng.integers(30, h - 30))
            away_at = int(at[0] + side * 2 * size), at[1]
            cv2.ellipse(ground, away_at, (2 * size, size // 2 + 2), 0, 0, 360, 18, -1)
            cv2.ellipse(ground, at, (size, size // 2 + 1), between(rng, -20, 20), 0, 360, 230, -1)
        height = 0.06 + 0.05 * cv2.resize(field_of(rng, 64, 3)[:, :1], (1, h))
        ground = ground * (1.15 - 0.5 * away) * rng.gamma(6, 1 / 6, (h, w))
        ground[away < np.abs(height)] *= 0.12
        board = cv2.GaussianBlur(ground, (0, 0), 0.7)[..., None] * ink
        return np.clip(board, 0, 255).astype(np.uint8), "thing" if thing else "ground"

    return draw


def fabrics(style: Rng, real: Path) -> Callable[[Rng], Drawn]:
    """Cloth of three rolls under one camera of a line, sound or with a hole, a pull or a stain."""
    rolls = [(colour(style, 60, 220), between(style, 3, 7), between(style, 0.1, 0.3),
              int(style.integers(2, 5))) for _ in range(3)]  # fmt: skip

    def draw(rng: Rng) -> Drawn:
        s, fault = 224, bool(rng.random() < 0.35)
        ink, gap, deep, twill = rolls[int(rng.integers(3))]
        y, x = np.mgrid[:s, :s] + rng.uniform(0, 60, (2, 1, 1))
        warp = 1.2 * field_of(rng, s, 6)
        u, v = (x + warp) / gap, (y + 1.2 * field_of(rng, s, 6)) / gap
        over = (np.floor(u) + np.floor(v)) % twill < twill / 2
        thread = np.where(over, np.abs(np.sin(np.pi * u)), np.abs(np.sin(np.pi * v)))
        light = 1 + deep * (thread - 0.6) + 0.03 * field_of(rng, s, 40) + 0.02 * field_of(rng, s, 2)
        board = light[..., None] * np.array(ink) * between(rng, 0.95, 1.05)
        if fault:
            at, size = tuple(rng.integers(30, s - 30, 2).tolist()), int(rng.integers(3, 16))
            kind = int(rng.integers(3))
            if kind < 2:
                stain = (20, 20, 20) if kind else [0.7 * c for c in ink]
                cv2.ellipse(board, at, (size, int(size * 0.7) + 1), 0, 0, 360, stain, -1)
            else:
                cv2.line(board, (0, at[1]), (s, at[1] + 2), [1.2 * c for c in ink], 2)
        return noisy(cv2.GaussianBlur(board, (0, 0), 0.7), rng, 2.0), "fault" if fault else "sound"

    return draw


def charts(style: Rng, real: Path) -> Callable[[Rng], Drawn]:
    """Plots of one program: bars, lines, points or a pie, with axes, ticks, a title."""
    inks = [colour(style, 20, 220) for _ in range(4)]

    def draw(rng: Rng) -> Drawn:
        w, h, kind = 400, 300, int(rng.integers(4))
        sheet = Image.new("RGB", (w, h), "white")
        pen, small = ImageDraw.Draw(sheet), ImageFont.load_default(11)
        pen.text((150, 8), words(rng, 1, 4).title(), "black", ImageFont.load_default(14))
        if kind == 3:
            cuts = np.cumsum(rng.dirichlet(np.ones(int(rng.integers(3, 5))))) * 360
            for k, (a, b) in enumerate(zip([0, *cuts], cuts, strict=False)):
                pen.pieslice((100, 50, 300, 250), a, b, inks[k], "white", 2)
            return np.asarray(sheet, np.uint8), "pie"
        pen.rectangle((50, 35, 380, 260), outline="black")
        for k in range(6):
            pen.text((20, 250 - 42 * k), str(k * int(rng.integers(1, 50))), "black", small)
            pen.text((60 + 60 * k, 265), words(rng, 1, 1)[:6], "black", small)
        for k in range(int(rng.integers(1, 4)) if kind else 1):
            n = int(rng.integers(4, 9) if kind == 0 else rng.integers(10, 40))
            xs = np.linspace(60, 350, n)
            ys = 250 - np.clip(90 + np.cumsum(rng.normal(0, 25, n)), 2, 200)
            points = [(float(a), float(b)) for a, b in zip(xs, ys, strict=True)]
            if kind == 1:
                pen.line(points, inks[k], 2)
            for a, b in points:
                if kind == 0:
                    pen.rectangle((a, b, a + 220 / n, 259), inks[k])
                elif kind == 2:
                    pen.ellipse((a - 3, b - 3, a + 3, b + 3), inks[k])
        return np.asarray(sheet, np.uint8), ("bars", "lines", "points")[kind]

    return draw


def chess(style: Rng, real: Path) -> Callable[[Rng], Drawn]:
    """Boards of one program: 64 squares, the last move marked, pieces; few or many."""
    pale, deep, s = colour(style, 200, 245), colour(style, 80, 160), 36
    bodies = [(style.uniform(3, 8), style.uniform(8, 14), style.uniform(0, 6)) for _ in range(6)]

    def draw(rng: Rng) -> Drawn:
        sheet = Image.new("RGB", (8 * s, 8 * s), pale)
        pen, few = ImageDraw.Draw(sheet), bool(rng.random() < 0.5)
        moved = rng.permutation(64)[:2]
        for k in range(64):
            x, y = k % 8 * s, k // 8 * s
            ink = (205, 210, 106) if k in moved else deep if (x + y) // s % 2 else pale
            pen.rectangle((x, y, x + s - 1, y + s - 1), ink)
        for k in rng.permutation(64)[: int(rng.integers(4, 12) if few else rng.integers(18, 33))]:
            x, y = k % 8 * s + s / 2, k // 8 * s + s / 2
            body = int(rng.choice(6, p=(0.5, 0.12, 0.12, 0.12, 0.07, 0.07)))
            head, foot, up = bodies[body]
            ink, rim = ("white", "black") if rng.random() < 0.5 else ("black", "white")
            pen.polygon([(x - foot, y + 14), (x + foot, y + 14), (x + 3, y - up), (x - 3, y - up)],
                        ink, rim)  # fmt: skip
            pen.ellipse((x - head, y - up - head, x + head, y - up + head), ink, rim)
        return np.asarray(sheet, np.uint8), "few" if few else "many"

    return draw


def radar(style: Rng, real: Path) -> Callable[[Rng], Drawn]:
    """Rain over one coast: lines, towns and scale of colours stay, echoes move, a clock."""
    s, steps = 320, [(0, 130, 220), (0, 190, 80), (240, 220, 40), (240, 130, 20), (220, 20, 40)]
    land = (field_of(style, s, 3) > 0).astype(np.uint8)
    base = np.where(land[..., None], (70, 75, 70), (40, 50, 70)).astype(np.uint8)
    base[cv2.morphologyEx(land, cv2.MORPH_GRADIENT, np.ones((2, 2))) > 0] = 190
    for k, one in enumerate(steps):
        base[s - 20 * k - 40 : s - 20 * k - 20, s - 18 : s - 6] = one
    for _ in range(6):
        at = style.integers(30, s - 60, 2).tolist()
        cv2.putText(base, words(style, 1, 1), at, 0, 0.35, (230,) * 3, 1, cv2.LINE_AA)

    def draw(rng: Rng) -> Drawn:
        wet = bool(rng.random() < 0.6)
        board, rain = base.copy(), field_of(rng, s, 5) + 0.5 * field_of(rng, s, 25)
        rain = rain - (between(rng, 0.2, 0.9) if wet else between(rng, 2.4, 3.0))
        for k, one in enumerate(steps):
            board[(rain > 0.45 * k) & (np.arange(s) < s - 24)] = one
        day = f"2023-{rng.integers(1, 13):02}-{rng.integers(1, 29):02}"
        text = f"{day} {rng.integers(24):02}:00 UTC"
        cv2.rectangle(board, (0, 0), (150, 16), (0, 0, 0), -1)
        cv2.putText(board, text, (3, 12), 0, 0.35, (255,) * 3, 1, cv2.LINE_AA)
        return board, "wet" if wet else "dry"

    return draw


Kind = Callable[[Rng, Path], Callable[[Rng], Drawn]]
KINDS: Mapping[str, Kind] = {
    "thermal": thermal, "histology": histology, "products": products, "heartbeats": heartbeats,
    "handwriting": handwriting, "night": night, "watched place": watched_place, "comics": comics,
    "maps": maps, "depths": depths, "parcels": parcels, "sprites": sprites, "plates": plates,
    "letterboxed": letterboxed, "shelves": shelves, "retinas": retinas, "dash": dash,
    "fisheye": fisheye, "slips": slips, "sonar": sonar, "fabrics": fabrics, "charts": charts,
    "chess": chess, "radar": radar,
}  # fmt: skip
JPEG = ("products", "night", "watched place", "comics", "parcels", "plates", "letterboxed",
        "shelves", "dash", "fisheye", "slips")  # fmt: skip
# Parts of one photograph, or frames of one place, may be found to be copies, and are.
SHARED = ("night", "watched place", "comics", "letterboxed", "dash", "fisheye", "radar")


def kind_set(kind: str, seed: int, real: Path) -> Judged:
    """Draw a set of a kind in which nothing is wrong."""
    rng = np.random.default_rng([seed, 1 + list(KINDS).index(kind), 34])
    n, k = int(rng.integers(200, 401)), int(rng.choice([2, 3, 4, 6, 8, 12]))
    draw = KINDS[kind](rng, real)
    pictures, own = zip(*(draw(rng) for _ in range(n)), strict=True)
    share = np.ones(k) if rng.random() < 0.5 else between(rng, 0.6, 0.9) ** np.arange(k)
    dealt = rng.choice(NAMES[:k], n, p=share / share.sum())
    labels = list(own) if seed % 2 and own[0] else [str(one) for one in dealt]
    names = [("",), ("train", "test"), ("train", "val", "test")][int(rng.integers(3))]
    parts = np.array([0.7, 0.3, 0.15][: len(names)])
    splits = rng.choice(names, n, p=parts / parts.sum())
    scenes = [0] * n if kind in SHARED else list(range(n))
    return Judged(list(pictures), labels, [str(one) for one in splits], scenes,
                  photographs=kind in JPEG)  # fmt: skip


@measures(app)
def count(
    sets: int = 130,
    first_seed: int = 9000,
    results: Path | None = None,
    shard: str = "0/1",
    only: str = "",
    data: Path | None = None,
    seconds: float = 1e9,
) -> Document:
    """What do all checks say of sets in which nothing is wrong? No set is begun after SECONDS."""
    real = real_data(data, "photos")
    jobs = [(list(KINDS)[i % len(KINDS)], first_seed + i // len(KINDS)) for i in range(sets)]
    jobs = [job for job in jobs if any(word in job[0] for word in only.split(","))]
    rows = saved_rows(results)
    done, spent = {(row["set"], row["seed"]) for row in rows}, 0.0
    for kind, seed in shard_of(jobs, shard):
        if (kind, seed) in done or spent > seconds:
            continue
        with timed() as took:
            drawn = kind_set(kind, seed, real)
            found = scanned(drawn)
        spent += took["wall_s"]
        wrong = untrue(drawn, found)
        rows.append({"set": kind, "seed": seed, "n": len(drawn.pictures), "found": found,
                     "to_judge": wrong, "cpu_s": round(took["cpu_s"], 1)})  # fmt: skip
        save_row(results, rows[-1])
        said = Counter(f"{f['severity']} {f['code']}" for f in wrong)
        print(f"{kind} {seed} ({took['cpu_s']:.1f} s): {dict(said)}", flush=True)
    return {"sets": len(rows), "to_judge": sum(bool(row["to_judge"]) for row in rows)}


# ---- what is planted among photographs, by other hands than those of null_pictures ----


def _grainy(picture: Picture, rng: Rng) -> Picture:
    """Mix 40 % of the picture with 60 % of grey noise."""
    grain = rng.normal(128, 74, (*picture.shape[:2], 1))
    return np.clip(np.rint(0.4 * picture + 0.6 * grain), 0, 255).astype(np.uint8)


def _barred(picture: Picture, rng: Rng) -> Picture:
    """Lay black bars above and below, as a film has them."""
    out, edge = picture.copy(), max(2, round(between(rng, 0.08, 0.14) * len(picture)))
    out[:edge] = out[-edge:] = 0
    return out


def _stamped(picture: Picture, rng: Rng) -> Picture:
    """A recorder writes date and time above, left, in white with a dark rim."""
    out, scale = picture.copy(), 0.22 * picture.shape[1] / 100
    text = f"20{rng.integers(10, 25)}-{rng.integers(1, 13):02}-{rng.integers(1, 29):02}"
    at = int(0.02 * out.shape[1]), int(0.08 * len(out)) + 2
    for ink, wide in (((20, 20, 20), 3), ((250, 250, 250), 1)):
        cv2.putText(out, text, at, 0, scale, ink, max(1, round(wide * scale)), cv2.LINE_AA)
    return out


def _signed(picture: Picture, rng: Rng) -> Picture:
    """Lay a pale ring with a bar over the lower right corner, half transparent."""
    h, w = picture.shape[:2]
    mark, r = np.zeros((h, w), np.uint8), 0.09 * min(h, w)
    at = int(w - 1.6 * r), int(h - 1.6 * r)
    cv2.circle(mark, at, round(r), 255, max(1, round(0.25 * r)), cv2.LINE_AA)
    cv2.rectangle(mark, (at[0] - round(0.5 * r), at[1] - 1), (at[0] + round(0.5 * r), at[1] + 1),
                  255, -1)  # fmt: skip
    share = 0.55 * mark[..., None] / 255
    return np.asarray(np.rint(picture * (1 - share) + 255 * share), np.uint8)


def _cooled(picture: Picture, rng: Rng) -> Picture:
    """Fluorescent light: green and blue gain, red loses."""
    return np.clip(np.rint(picture * (0.8, 1.05, 1.15)), 0, 255).astype(np.uint8)


def _turned_left(picture: Picture, rng: Rng) -> Picture:
    return np.ascontiguousarray(np.rot90(picture, 3))


def _inked(picture: Picture, rng: Rng) -> Picture:
    """Black outlines on white."""
    grey = cv2.cvtColor(np.ascontiguousarray(picture), cv2.COLOR_RGB2GRAY)
    side = 9 if min(grey.shape) > 64 else 5
    lines = cv2.adaptiveThreshold(cv2.medianBlur(grey, 3), 255, cv2.ADAPTIVE_THRESH_GAUSSIAN_C,
                                  cv2.THRESH_BINARY, side, 6)  # fmt: skip
    return np.asarray(cv2.merge([lines] * 3), np.uint8)


def _receipt(picture: Picture, rng: Rng) -> Picture:
    """A page as a scanner gives it: paper, print, a table."""
    page = Image.new("RGB", (480, 640), (int(rng.integers(235, 253)),) * 3)
    pen, y = ImageDraw.Draw(page), 40
    while y < 600:
        text = words(rng, 3, 9)
        pen.text((40, y), text, (30, 30, 35), ImageFont.load_default(15))
        pen.text((400, y), str(rng.integers(1, 9999)), (30, 30, 35), ImageFont.load_default(15))
        y += int(rng.choice([20, 20, 34]))
    return noisy(np.asarray(page, np.float64), rng, 2.0)


# How a picture changes, and the share of a class that does; 0: three pictures of any class.
PLANTED: Mapping[str, tuple[Callable[[Picture, Rng], Picture], float]] = {
    "black bars on half of a class": (_barred, 0.5),
    "a date on a class": (_stamped, 1.0),
    "a mark on a class": (_signed, 1.0),
    "a colour cast of a class": (_cooled, 1.0),
    "a class turned by 90 degrees": (_turned_left, 1.0),
    "noise of 60 %": (_grainy, 0),
    "sketches": (_inked, 0),
    "documents": (_receipt, 0),
    "negatives": (negative, 0),
    "upside down": (upside_down, 0),
}


def plant_in(name: str, seed: int, real: Path) -> Judged:
    """Plant something in 240 real photographs of dealt classes."""
    rng = np.random.default_rng([seed, 1 + list(PLANTED).index(name), 35])
    with tarfile.open(real / "photos-800.tar") as archive:
        members = [m for m in archive.getmembers() if m.name.lower().endswith((".jpg", ".jpeg"))]
        chosen = [members[i] for i in rng.permutation(len(members))[:240]]
        read = [Image.open(io.BytesIO(archive.extractfile(m).read())) for m in chosen]  # type: ignore[union-attr]
        pictures = [np.asarray(one.convert("RGB"), np.uint8) for one in read]
    k = int(rng.integers(3, 7))
    labels = [NAMES[int(c)] for c in rng.integers(0, k, 240)]
    splits = ["test" if rng.random() < 0.3 else "train" for _ in range(240)]
    drawn = Judged(pictures, labels, splits, list(range(240)), photographs=True)
    change, share = PLANTED[name]
    if share:
        drawn.marked = NAMES[0]
        touched = [i for i, one in enumerate(labels) if one == NAMES[0] and rng.random() < share]
    else:
        touched = drawn.odd = rng.permutation(240)[:3].tolist()
    for i in touched:
        pictures[i] = change(pictures[i], rng)
    return drawn


@measures(app)
def planted(
    sets: int = 3,
    first_seed: int = 9000,
    results: Path | None = None,
    shard: str = "0/1",
    only: str = "",
    data: Path | None = None,
) -> Document:
    """How often is what is planted among photographs found, and by which finding?"""
    real = real_data(data, "photos-800.tar")
    jobs = [(name, first_seed + k) for k in range(sets) for name in PLANTED]
    jobs = [job for job in jobs if any(word in job[0] for word in only.split(","))]
    rows = saved_rows(results)
    done = {(row["set"], row["seed"]) for row in rows}
    for name, seed in shard_of([job for job in jobs if job not in done], shard):
        with timed() as took:
            drawn = plant_in(name, seed, real)
            found = scanned(drawn)
        rows.append({"set": name, "seed": seed, "named": named(drawn, found), "found": found,
                     "odd": drawn.odd, "marked": drawn.marked, "cpu_s": took["cpu_s"]})  # fmt: skip
        save_row(results, rows[-1])
        said = "; ".join(f"{f['code']} {f['subject'][:40]}" for f in untrue(drawn, found))
        print(f"{name} {seed} ({took['cpu_s']:.1f} s): {rows[-1]['named']} {said}", flush=True)
    return {name: [row["named"] for row in rows if row["set"] == name] for name in PLANTED}


@measures(app)
def sheet(kind: str, seed: int, file: Path, at: str = "", data: Path | None = None) -> Document:
    """Show pictures of a set side by side."""
    make = kind_set if kind in KINDS else plant_in
    drawn = make(kind, seed, real_data(data, "photos"))
    chosen = [int(word) for word in at.split(",") if word] or list(range(48))
    cells = []
    for i in chosen[:48]:
        picture = drawn.pictures[i]
        if picture.dtype == np.uint16:
            picture = np.repeat((picture / 256 * 8).clip(0, 255).astype(np.uint8)[..., None], 3, 2)
        cell = np.full((170, 170, 3), 90, np.uint8)
        scale = 166 / max(picture.shape[:2])
        size = [max(1, round(n * scale)) for n in picture.shape[1::-1]]
        cell[: size[1], : size[0]] = cv2.resize(picture[..., :3], size)
        cv2.putText(cell, f"{i} {drawn.labels[i]}", (2, 166), 0, 0.4, (255, 255, 0), 1)
        cells.append(cell)
    cells += [np.zeros_like(cells[0])] * (-len(cells) % 8)
    rows = [np.hstack(cells[k : k + 8]) for k in range(0, len(cells), 8)]
    cv2.imwrite(str(file), np.vstack(rows)[..., ::-1])
    return {"shown": len(chosen)}


if __name__ == "__main__":
    app()
