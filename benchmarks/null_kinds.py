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


Kind = Callable[[Rng, Path], Callable[[Rng], Drawn]]
KINDS: Mapping[str, Kind] = {
    "thermal": thermal, "histology": histology, "products": products, "heartbeats": heartbeats,
    "handwriting": handwriting, "night": night, "watched place": watched_place, "comics": comics,
    "maps": maps, "depths": depths, "parcels": parcels, "sprites": sprites, "plates": plates,
    "letterboxed": letterboxed,
}  # fmt: skip
JPEG = ("products", "night", "watched place", "comics", "parcels", "plates", "letterboxed")
# Parts of one photograph, or frames of one place, may be found to be copies, and are.
SHARED = ("night", "watched place", "comics", "letterboxed")


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
