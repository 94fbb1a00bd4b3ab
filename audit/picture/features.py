"""Features: what is measured on decoded pictures, all from one reduced copy of each.

The *feature picture* is the shown picture halved exactly (2x2 means) until its longer side is at
most 384 px: smaller pictures stay as they are. Perceptual hashes equal `imagehash` bit for bit
given that picture (`feature_picture(...)` returns it, so that anyone can check). Blur needs about
this size: on sharp against blurred photographs an eighth-size copy hardly tells them apart.

Pictures whose copies have one size are measured together, as one array: of small pictures, the
calls would cost several times what they compute. One compiled pass gives every statistic, because a
chain of array expressions over a photograph would cost as much as its decode. A change of meaning
raises the column's version, and the next scan measures every file again: reading and decoding take
more than half of the time, so one column alone would save less than half.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from audit.machine.compiled import compiled_on_first_call
from audit.picture.hashing import hash_bits, reduce_luma
from audit.picture.pixels import Pixels
from audit.picture.places import PLACES
from audit.records import Column

# ---- what a scan stores per file: the keys of its row, and the columns that decoding fills ----

MEASURED_KEYS: tuple[Column, ...] = (
    Column("sample_id", "VARCHAR", "the sample; unique"),
    Column("file_key", "VARCHAR", "size, mtime and ctime of the file that was measured"),
)
FILE_COLUMNS: tuple[Column, ...] = (
    Column("status", "VARCHAR", "ok | damaged (not whole) | unreadable (could not be decoded)"),
    Column(
        "error_kind",
        "VARCHAR",
        "missing | permission | empty | not-an-image | unsupported | truncated | corrupt | bomb | "
        "memory | crashed | timeout | io; null when ok",
    ),
    Column("error", "VARCHAR", "message of the decoder or the system; null when ok"),
    Column(
        "error_at",
        "DOUBLE",
        "share (0..1) of the rows that were decoded before the error; null: unknown",
    ),
    Column("content_hash", "VARCHAR", "BLAKE3-256 of the file's bytes, 64 hex digits"),
    Column(
        "pixel_hash",
        "VARCHAR",
        "XXH3-128 of the shown pixels (orientation applied, grey as RGB, alpha only where used), "
        "32 hex digits; null without an image",
    ),
    Column(
        "detected",
        "VARCHAR",
        "content by its magic bytes: JPEG, PNG, HTML, PDF, ZIP, text, zeros, ...; null if unknown",
    ),
    Column(
        "format", "VARCHAR", "image format by content, Pillow's name; null if no decoder read it"
    ),
    Column("extension", "VARCHAR", "the file name's extension, lower case without the dot"),
    Column("width", "INTEGER", "columns of the shown image, after EXIF orientation, px"),
    Column("height", "INTEGER", "rows of the shown image, after EXIF orientation, px"),
    Column("mode", "VARCHAR", "Pillow mode of the file: L, RGB, RGBA, P, CMYK, I;16, ..."),
    Column("bit_depth", "INTEGER", "bits per channel"),
    Column(
        "frames",
        "INTEGER",
        "frames or pages in the file, a million at most of a TIFF; only the first is measured",
    ),
    Column("animated", "BOOLEAN", "more than one frame, shown in time (GIF, APNG, WebP, AVIF)"),
    Column("orientation", "INTEGER", "EXIF orientation 1..8; 1 when absent"),
    Column("has_alpha", "BOOLEAN", "an alpha channel or a transparent colour is declared"),
    Column("icc_profile", "VARCHAR", "name of the embedded ICC profile; null without one"),
    Column("jpeg_quality", "INTEGER", "IJG quality 1..100 estimated from the luminance table"),
    Column("jpeg_subsampling", "VARCHAR", "chroma subsampling: 4:4:4, 4:2:2, 4:2:0, ..."),
    Column("progressive", "BOOLEAN", "progressive or interlaced coding"),
    Column("exif_time", "TIMESTAMP", "EXIF DateTimeOriginal; null when absent or malformed"),
    Column("exif_camera", "VARCHAR", "EXIF make, model and body serial number; null when absent"),
    Column("decoder_warnings", "VARCHAR", "warnings of the decoder, joined by '; '"),
    Column("trailing_bytes", "BIGINT", "bytes after the end of the image's data (JPEG, PNG)"),
    Column("missing_end", "BOOLEAN", "the end marker (JPEG EOI, PNG IEND) is absent"),
    Column(
        "grey_tail",
        "DOUBLE",
        "share (0..1) of the height, from the bottom, that is the flat 128 grey that tolerant "
        "decoders use for missing data",
    ),
)


# ---- what is measured on the picture ----

LONGEST = 384  # px: the feature picture's longer side is above half of this, at most this

FEATURES: tuple[Column, ...] = (
    Column("phash", "UBIGINT", "imagehash.phash (64 bits) of the feature image"),
    Column("dhash", "UBIGINT", "imagehash.dhash (64 bits) of the feature image"),
    Column("phash256", "VARCHAR", "imagehash.phash, hash_size 16, of the feature image, hex"),
    Column("brightness", "DOUBLE", "mean luma, 0 black .. 1 white"),
    Column("brightness_p1", "DOUBLE", "1st percentile of luma, 0..1"),
    Column("brightness_p5", "DOUBLE", "5th percentile of luma, 0..1"),
    Column("brightness_p50", "DOUBLE", "median luma, 0..1"),
    Column("brightness_p95", "DOUBLE", "95th percentile of luma, 0..1"),
    Column("brightness_p99", "DOUBLE", "99th percentile of luma, 0..1"),
    Column("contrast", "DOUBLE", "standard deviation of luma, 0..0.5"),
    Column("saturation", "DOUBLE", "mean of (max - min) / max over RGB, 0 grey .. 1"),
    Column("channel_spread", "DOUBLE", "99th percentile of max - min over RGB, 0 grey .. 1"),
    Column("red", "DOUBLE", "mean of the red channel, 0..1"),
    Column("green", "DOUBLE", "mean of the green channel, 0..1"),
    Column("blue", "DOUBLE", "mean of the blue channel, 0..1"),
    Column(
        "sharpness",
        "DOUBLE",
        "share of the luma's neighbour differences that a 3x3 mean removes, 0 (already blurred) "
        ".. 1 (crisp or noisy); null for a flat image",
    ),
    Column("edge_density", "DOUBLE", "share of pixels that differ by over 1/16 from a neighbour"),
    Column("entropy", "DOUBLE", "Shannon entropy of the luma histogram, bits, 0 (constant) .. 8"),
    Column("noise", "DOUBLE", "noise standard deviation from a median of second differences, 0..1"),
    Column(
        "noise_floor",
        "DOUBLE",
        "the same at full size, in the smoothest of 16 patches: noise is everywhere, texture is "
        "not; null for an image of at most 384 px",
    ),
    Column("transparent", "DOUBLE", "share of pixels with alpha below one half, 0..1"),
    Column("border_red", "DOUBLE", "mean of red in the outermost 2 px all around, 0..1"),
    Column("border_green", "DOUBLE", "mean of green in the outermost 2 px all around, 0..1"),
    Column("border_blue", "DOUBLE", "mean of blue in the outermost 2 px all around, 0..1"),
    Column(
        "border_spread",
        "DOUBLE",
        "standard deviation of luma in the outermost 2 px all around, 0 (one colour: a frame, "
        "padding, a studio) .. 0.5",
    ),
    Column("channels_equal", "BOOLEAN", "red = green = blue at every pixel of the feature image"),
    *PLACES,
)
MEASURED: tuple[Column, ...] = FILE_COLUMNS + FEATURES
FEATURE_ROW: tuple[Column, ...] = MEASURED_KEYS + MEASURED  # a row of the table `features`


def feature_picture(rgb: Pixels) -> Pixels:
    """Return the picture halved exactly until its longer side is at most 384 px.

    uint8 (h, w, 3) in and out; an odd last row or column is left out of the halving.
    """
    while max(rgb.shape[:2]) > LONGEST and min(rgb.shape[:2]) > 1:
        rgb = _halved(np.ascontiguousarray(rgb))
    return np.ascontiguousarray(rgb)


@compiled_on_first_call
def _halved(rgb: Any) -> Any:
    """Return the rounded means of 2x2 pixels."""
    height, width = rgb.shape[0] // 2, rgb.shape[1] // 2
    lines = rgb.reshape(rgb.shape[0], -1)
    half = np.empty((height, width, 3), np.uint8)
    sums = np.empty(6 * width, np.uint16)
    for y in range(height):
        above, below = lines[2 * y], lines[2 * y + 1]
        for at in range(6 * width):
            sums[at] = np.uint16(above[at]) + np.uint16(below[at])
        out = half[y]
        for x in range(width):
            out[x, 0] = (sums[6 * x] + sums[6 * x + 3] + 2) >> 2
            out[x, 1] = (sums[6 * x + 1] + sums[6 * x + 4] + 2) >> 2
            out[x, 2] = (sums[6 * x + 2] + sums[6 * x + 5] + 2) >> 2
    return half


PATCHES, PATCH = 4, 20  # patches a side, spread over the picture, and their side, px


def noise_floor(rgb: Pixels) -> float:
    """Return the feature `noise_floor` of a picture; NaN where its feature picture is as large.

    .01 ms. Halving is a mean of pixels, which has half of their noise.
    """
    if max(rgb.shape[:2]) <= LONGEST or min(rgb.shape[:2]) < PATCH:
        return math.nan
    return _smoothest_patch(np.ascontiguousarray(rgb))


@compiled_on_first_call
def _smoothest_patch(rgb: Any) -> float:
    height, width = rgb.shape[0], rgb.shape[1]
    luma, counts, least = np.empty((PATCH, PATCH), np.int32), np.empty(256, np.int32), 1.0
    for place in range(PATCHES * PATCHES):
        top = (2 * (place // PATCHES) + 1) * (height - PATCH) // (2 * PATCHES)
        left = (2 * (place % PATCHES) + 1) * (width - PATCH) // (2 * PATCHES)
        for y in range(PATCH):
            line, out = rgb[top + y, left : left + PATCH], luma[y]
            for x in range(PATCH):
                weighed = np.uint32(19595) * line[x, 0] + np.uint32(38470) * line[x, 1]
                weighed += np.uint32(7471) * line[x, 2]
                out[x] = np.int32((weighed + np.uint32(0x8000)) >> np.uint32(16))
        counts[:] = 0
        for y in range(1, PATCH - 1, 2):
            above, here, below = luma[y - 1], luma[y], luma[y + 1]
            for x in range(1, PATCH - 1):
                corners = above[x - 1] + above[x + 1] + below[x - 1] + below[x + 1]
                sides = above[x] + here[x - 1] + here[x + 1] + below[x]
                counts[min(abs(corners - 2 * sides + 4 * here[x]), 255)] += 1
        seen = (PATCH - 2) * (PATCH // 2 - 1)
        least = min(least, _median(counts, seen) / (6 * 0.6745 * 255))
    return least


def transparent_share(alpha: Pixels | None) -> float:
    """Return the feature `transparent` of a picture's alpha."""
    return 0.0 if alpha is None else float(np.count_nonzero(alpha < 128)) / alpha.size


class Reduced(NamedTuple):
    """What is kept of n pictures of any sizes until their features are told, by columns."""

    numbers: npt.NDArray[np.float64]  # (n, NUMBERS)
    counts: npt.NDArray[np.int64]  # (n, 256) of luma
    spreads: npt.NDArray[np.int64]  # (n, 256) of max - min over RGB
    totals: npt.NDArray[np.int64]  # (n,) pixels
    steps: Pixels  # (n, 8, 9) luma of dhash
    coarse: Pixels  # (n, 32, 32) luma of phash
    fine: Pixels  # (n, 64, 64) luma of phash256


def count_pixels(stack: Pixels) -> Reduced:
    """Return what is computed on the pixels of feature pictures of one size, (n, h, w, 3)."""
    import cv2  # here, because it takes longer to import than most callers run

    n, height, width = stack.shape[:3]
    planes = cv2.split(stack.reshape(n * height, width, 3))
    red, green, blue = (plane.reshape(n, -1) for plane in planes)
    luma = np.empty((n, height, width), np.uint8)
    numbers = np.empty((n, len(NUMBERS)))
    counts, spreads = np.empty((n, 256), np.int64), np.empty((n, 256), np.int64)
    _statistics(stack, red, green, blue, luma, numbers, counts, spreads)
    totals = np.full(n, height * width)
    return Reduced(numbers, counts, spreads, totals, *reduce_luma(luma))


def tell_features(reduced: Reduced) -> dict[str, Any]:
    """Return the features of n pictures by column name.

    Each is an array or a list of n values, NaN where there is none; `transparent` is not among them
    (`transparent_share`).
    """
    numbers = reduced.numbers
    return {
        **dict(zip(NUMBERS, numbers.T, strict=True)),
        "sharpness": np.where(numbers[:, 6] < 0, np.nan, numbers[:, 6]),
        **_from_histograms(reduced.counts, reduced.spreads, reduced.totals[:, None]),
        **hash_bits(reduced.steps, reduced.coarse, reduced.fine),
    }


def measure_pictures(stack: Pixels) -> dict[str, Any]:
    """Return the features of feature pictures of one size, (n, h, w, 3)."""
    return tell_features(count_pixels(stack))


def _from_histograms(
    luma: npt.NDArray[np.int64], spread: npt.NDArray[np.int64], totals: npt.NDArray[np.int64]
) -> dict[str, Any]:
    """Return what follows from the histograms, (n, 256), of pictures of `totals` pixels, (n, 1)."""
    cumulated = luma.cumsum(axis=1)
    features: dict[str, Any] = {
        name: (cumulated < totals * share).sum(axis=1) / 255.0
        for name, share in PERCENTILES.items()
    }
    shares, seen = luma / totals, luma > 0
    bits = shares * np.log2(shares, where=seen, out=np.zeros(shares.shape))
    return features | {
        # one sum a picture, of what is seen: the order of additions decides the last digits
        "entropy": [0.0 - float(row[some].sum()) for row, some in zip(bits, seen, strict=True)],
        "channel_spread": (spread.cumsum(axis=1) < 0.99 * totals).sum(axis=1) / 255.0,
        "channels_equal": spread[:, 0] == totals[:, 0],
    }


PERCENTILES = {f"brightness_p{q}": q / 100 for q in (1, 5, 50, 95, 99)}
NUMBERS = (
    "brightness", "contrast", "saturation", "red", "green", "blue", "sharpness", "edge_density",
    "noise", "border_red", "border_green", "border_blue", "border_spread",
)  # fmt: skip
BLOCK = 1024  # pixels that are worked on at a time: they stay in the nearest cache


@compiled_on_first_call
def _statistics(
    stack: Any, reds: Any, greens: Any, blues: Any, luma: Any, numbers: Any, counts: Any,
    spreads: Any,
) -> None:  # fmt: skip
    """Fill `luma` (Pillow's L), NUMBERS, and the counts of luma and of channel spread.

    `stack` is (n, h, w, 3), the three planes are its channels, (n, h * w).
    """
    n, height, width = luma.shape
    total = height * width
    for at in range(n):
        flat = luma[at].reshape(total)
        sums = _colours(reds[at], greens[at], blues[at], flat, counts[at], spreads[at])
        # Exact integer moments of the histogram: no cancellation as in a running sum of floats.
        mean, square = 0.0, 0.0
        for value in range(256):
            mean += value * counts[at, value]
            square += value * value * counts[at, value]
        mean /= total
        out = numbers[at]
        out[0], out[1] = mean / 255, max(square / total - mean * mean, 0.0) ** 0.5 / 255
        out[2] = sums[3] / (total * 4294967296.0)
        out[3], out[4], out[5] = sums[0] / total / 255, sums[1] / total / 255, sums[2] / total / 255
        out[6], out[7], out[8] = _structure(luma[at])
        out[9], out[10], out[11], out[12] = _border(stack[at], luma[at])


@compiled_on_first_call
def _colours(reds: Any, greens: Any, blues: Any, luma: Any, lumas: Any, spreads: Any) -> Any:
    """Fill luma and both histograms; return the sums of red, green, blue, saturation * 2^32.

    Integers throughout, and four histograms in turn, because a chain of float additions or of
    increments to one counter would each cost more than all the rest. What can be done without
    histograms goes first, in loops of vector instructions.
    """
    counts, spread_counts = np.zeros((4, 256), np.int32), np.zeros((4, 256), np.int32)
    by_high = np.zeros((4, 256), np.int64)
    high, spread = np.empty(BLOCK, np.uint8), np.empty(BLOCK, np.uint8)
    sums = np.zeros(4, np.int64)
    for start in range(0, len(luma), BLOCK):
        r, g, b = reds[start:][:BLOCK], greens[start:][:BLOCK], blues[start:][:BLOCK]
        grey = luma[start:][:BLOCK]
        red, green, blue = np.int32(0), np.int32(0), np.int32(0)
        for x in range(len(grey)):
            red, green, blue = red + np.int32(r[x]), green + np.int32(g[x]), blue + np.int32(b[x])
            # Pillow's L: the weights of ITU-R BT.601 times 2^16, rounded.
            weighed = np.uint32(19595) * r[x] + np.uint32(38470) * g[x] + np.uint32(7471) * b[x]
            grey[x] = (weighed + np.uint32(0x8000)) >> np.uint32(16)
        for x in range(len(grey)):
            high[x] = max(r[x], g[x], b[x])
            spread[x] = high[x] - min(r[x], g[x], b[x])
        for x in range(len(grey)):
            counts[x & 3, grey[x]] += 1
            spread_counts[x & 3, spread[x]] += 1
            by_high[x & 3, high[x]] += spread[x]
        sums[0], sums[1], sums[2] = sums[0] + red, sums[1] + green, sums[2] + blue
    for value in range(256):
        lumas[value], spreads[value], weight = 0, 0, np.int64(0)
        for part in range(4):
            lumas[value] += counts[part, value]
            spreads[value] += spread_counts[part, value]
            weight += by_high[part, value]
        if value:  # a black pixel has no saturation
            sums[3] += weight * (((1 << 32) + value // 2) // value)
    return sums


@compiled_on_first_call
def _border(rgb: Any, luma: Any) -> Any:
    """Return mean red, green and blue and the spread of luma of the outermost 2 px all around."""
    height, width = luma.shape
    sums = np.zeros(5, np.int64)
    count = 0
    for y in range(height):
        # Inside, the first and the last two columns; above and below, all.
        inner = 2 <= y < height - 2 and width > 4
        for at in range(4 if inner else width):
            x = width - 4 + at if inner and at > 1 else at
            grey = np.int64(luma[y, x])
            sums[0] += rgb[y, x, 0]
            sums[1] += rgb[y, x, 1]
            sums[2] += rgb[y, x, 2]
            sums[3] += grey
            sums[4] += grey * grey
            count += 1
    mean = sums[3] / count
    spread = max(sums[4] / count - mean * mean, 0.0) ** 0.5
    scale = 255.0 * count
    return sums[0] / scale, sums[1] / scale, sums[2] / scale, spread / 255


@compiled_on_first_call
def _structure(luma: Any) -> Any:
    """Return (sharpness or -1, edge density, noise) of uint8 luma.

    Sharpness compares neighbour differences before and after a 3x3 mean (after Crete et al., The
    blur effect, SPIE 6492, 2007). Noise: median of |second difference in x and y| / (6 * 0.6745) on
    every other row, after Immerkaer, Fast noise variance estimation, CVIU 64(2), 1996, with a
    median for its mean.
    """
    height, width = luma.shape
    if height < 4 or width < 4:
        return -1.0, 0.0, 0.0
    before, removed, edges = _differences(luma, _sums_of_nine(luma))
    # The mask 1 -2 1 / -2 4 -2 / 1 -2 1 cancels planes and edges along an axis, so what is left is
    # mostly noise; its weights have a squared norm of 36, hence the 6 below.
    second = np.zeros((4, 1024), np.int64)
    ripples = np.empty(width, np.int16)
    for y in range(1, height - 2, 2):
        above, here, below = luma[y - 1], luma[y], luma[y + 1]
        for x in range(1, width - 2):
            corners = np.int32(above[x - 1]) + above[x + 1] + below[x - 1] + below[x + 1]
            sides = np.int32(above[x]) + here[x - 1] + here[x + 1] + below[x]
            ripples[x] = min(abs(corners - 2 * sides + 4 * np.int32(here[x])), 1023)
        for x in range(1, width - 2):
            second[x & 3, ripples[x]] += 1
    total: Any = np.int64(0)
    for value in range(1024):
        for part in range(1, 4):
            second[0, value] += second[part, value]
        total += second[0, value]
    return (
        removed / before if before else -1.0,
        edges / ((height - 3) * (width - 3)),
        # 0.6745: the median of |x| of a standard normal; a median, because texture fills the tail.
        _median(second[0], total) / (6 * 0.6745 * 255),
    )


@compiled_on_first_call
def _sums_of_nine(luma: Any) -> Any:
    """Return int16 (h, w): the sum of the 3x3 neighbourhood, 0 on the border."""
    height, width = luma.shape
    # Rows first, then columns: 4 additions per pixel instead of 8, and 9 * 255 fits in int16.
    rows = np.zeros((height, width), np.int16)
    for y in range(height):
        line, out = luma[y], rows[y]
        for x in range(1, width - 1):
            out[x] = np.int16(line[x - 1]) + np.int16(line[x]) + np.int16(line[x + 1])
    nine = np.zeros((height, width), np.int16)
    for y in range(1, height - 1):
        above, here, below, out = rows[y - 1], rows[y], rows[y + 1], nine[y]
        for x in range(1, width - 1):
            out[x] = above[x] + here[x] + below[x]
    return nine


@compiled_on_first_call
def _differences(luma: Any, nine: Any) -> Any:
    """Return sums of neighbour differences (x9), of what the 3x3 mean removes, and of edges."""
    height, width = luma.shape
    before, removed, edges = np.int64(0), np.int64(0), np.int64(0)
    for y in range(1, height - 2):
        line, below, mean, mean_below = luma[y], luma[y + 1], nine[y], nine[y + 1]
        for x in range(1, width - 2):
            here, blurred = np.int32(line[x]), np.int32(mean[x])
            # Times 9, because `nine` holds sums where the mean would need a division.
            across: Any = np.int32(9 * abs(here - np.int32(line[x + 1])))
            down: Any = np.int32(9 * abs(here - np.int32(below[x])))
            across_blurred: Any = np.int32(abs(blurred - np.int32(mean[x + 1])))
            down_blurred: Any = np.int32(abs(blurred - np.int32(mean_below[x])))
            before += across + down
            removed += max(0, across - across_blurred) + max(0, down - down_blurred)
            edges += max(across, down) > 144  # 9 * 16: over 1/16 of the range
    return before, removed, edges


@compiled_on_first_call
def _median(counts: Any, total: int) -> float:
    """Return the median of a histogram of integers, interpolated within its bin."""
    below = 0
    for value in range(counts.shape[0]):
        if 2 * (below + counts[value]) >= total:
            # Bin `value` covers value +- 1/2: interpolation keeps small noise from being rounded.
            inside = (total / 2 - below) / max(counts[value], 1)
            return float(max(0.0, value - 0.5 + inside))
        below += counts[value]
    return 1.0 * len(counts)


def feature_versions(columns: tuple[Column, ...] = MEASURED) -> Mapping[str, int]:
    """Return the version of every measured column: stored with a run, compared at the next scan."""
    return {column.name: column.version for column in columns}
