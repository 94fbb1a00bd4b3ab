"""Features: what is measured on decoded pictures, all from one reduced copy of each.

The *feature picture* is the shown picture halved exactly (2x2 means) until its longer side is at
most 384 px. Pictures whose copies have one size are measured together, in one compiled pass; a
change of meaning raises the column's version, and the next scan measures every file again.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from audit.picture.hashing import hash_bits, reduce_luma
from audit.picture.pixels import Pixels
from audit.picture.places import PLACES
from audit.picture.statistics import NUMBERS, SECOND_DIFFERENCE, measure_stack, median_of
from audit.records import Column

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
    Column("error_at", "DOUBLE", "share (0..1) of rows decoded before the error; null: unknown"),
    Column("content_hash", "VARCHAR", "BLAKE3-256 of the file's bytes, 64 hex digits"),
    Column(
        "pixel_hash",
        "VARCHAR",
        "XXH3-128 of the shown pixels (orientation applied, grey as RGB, alpha only where used), "
        "32 hex digits; null without an image",
    ),
    Column("detected", "VARCHAR", "content by first bytes: JPEG, HTML, zeros, ...; null: unknown"),
    Column("format", "VARCHAR", "Pillow's name of the format; null if no decoder read it"),
    Column("extension", "VARCHAR", "the file name's extension, lower case without the dot"),
    Column("width", "INTEGER", "columns of the shown image, after EXIF orientation, px"),
    Column("height", "INTEGER", "rows of the shown image, after EXIF orientation, px"),
    Column("mode", "VARCHAR", "Pillow mode of the file: L, RGB, RGBA, P, CMYK, I;16, ..."),
    Column("bit_depth", "INTEGER", "bits per channel"),
    Column("frames", "INTEGER", "frames or pages, up to a million; the first is measured"),
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
    Column("grey_tail", "DOUBLE", "share of the height, from the bottom, that is flat 128 grey"),
)


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
    Column("sharpness", "DOUBLE", "share of the contrast that a 3x3 mean removes; null: flat"),
    Column("edge_density", "DOUBLE", "share of pixels that differ by over 1/16 from a neighbour"),
    Column("entropy", "DOUBLE", "Shannon entropy of the luma histogram, bits, 0 (constant) .. 8"),
    Column("noise", "DOUBLE", "noise standard deviation from a median of second differences, 0..1"),
    Column("noise_floor", "DOUBLE", "noise of the smoothest of 16 patches; null up to 384 px"),
    Column("transparent", "DOUBLE", "share of pixels with alpha below one half, 0..1"),
    Column("border_red", "DOUBLE", "mean of red in the outermost 2 px all around, 0..1"),
    Column("border_green", "DOUBLE", "mean of green in the outermost 2 px all around, 0..1"),
    Column("border_blue", "DOUBLE", "mean of blue in the outermost 2 px all around, 0..1"),
    Column("border_spread", "DOUBLE", "deviation of luma in the outermost 2 px, 0..0.5"),
    Column("channels_equal", "BOOLEAN", "red = green = blue at every pixel of the feature image"),
    *PLACES,
)
MEASURED: tuple[Column, ...] = FILE_COLUMNS + FEATURES
FEATURE_ROW: tuple[Column, ...] = MEASURED_KEYS + MEASURED  # a row of the table `features`


def feature_picture(rgb: Pixels) -> Pixels:
    """Return the picture halved exactly until its longer side is at most 384 px.

    uint8 (h, w, 3) in and out; an odd last row or column is left out of the halving.
    """
    import cv2  # here, because it takes longer to import than most callers run

    while max(rgb.shape[:2]) > LONGEST and min(rgb.shape[:2]) > 1:
        height, width = rgb.shape[0] // 2, rgb.shape[1] // 2
        even = np.ascontiguousarray(rgb)[: 2 * height, : 2 * width]
        # OpenCV rounds the mean of four pixels as (sum + 2) >> 2
        rgb = np.asarray(cv2.resize(even, (width, height), interpolation=cv2.INTER_AREA))
    return np.ascontiguousarray(rgb)


PATCHES, PATCH = 4, 20  # patches a side, spread over the picture, and their side, px


def noise_floor(rgb: Pixels) -> float:
    """Return the feature `noise_floor` of a picture; NaN where its feature picture is as large."""
    import cv2
    from PIL import Image

    if max(rgb.shape[:2]) <= LONGEST or min(rgb.shape[:2]) < PATCH:
        return math.nan
    # the middle of each of 4 x 4 fields
    tops, lefts = (
        (2 * np.arange(PATCHES) + 1) * (s - PATCH) // (2 * PATCHES) for s in rgb.shape[:2]
    )
    rows, columns = tops[:, None] + np.arange(PATCH), lefts[:, None] + np.arange(PATCH)
    patches = rgb[rows[:, None, :, None], columns[None, :, None, :]]
    luma = np.asarray(Image.fromarray(patches.reshape(-1, PATCH, 3)).convert("L"))
    second = cv2.sepFilter2D(luma, cv2.CV_16S, SECOND_DIFFERENCE, SECOND_DIFFERENCE)
    inner = second.reshape(-1, PATCH, PATCH)[:, 1 : PATCH - 1 : 2, 1 : PATCH - 1]
    ripples = np.minimum(np.abs(inner), 255).reshape(len(inner), -1)
    apart = ripples + 256 * np.arange(len(inner))[:, None]
    counts = np.bincount(apart.ravel(), minlength=256 * len(inner)).reshape(len(inner), 256)
    return min(1.0, float(median_of(counts).min()) / (6 * 0.6745 * 255))


def transparent_share(alpha: Pixels | None) -> float:
    """Return the feature `transparent` of a picture's alpha."""
    return 0.0 if alpha is None else float(np.count_nonzero(alpha < 128)) / alpha.size


class Reduced(NamedTuple):
    """What features of n pictures of any sizes are made of."""

    numbers: npt.NDArray[np.float64]  # (n, NUMBERS)
    counts: npt.NDArray[np.int64]  # (n, 256) of luma
    spreads: npt.NDArray[np.int64]  # (n, 256) of max - min over RGB
    totals: npt.NDArray[np.int64]  # (n,) pixels
    steps: Pixels  # (n, 8, 9) luma of dhash
    coarse: Pixels  # (n, 32, 32) luma of phash
    fine: Pixels  # (n, 64, 64) luma of phash256


def count_pixels(stack: Pixels) -> Reduced:
    """Return what is computed on the pixels of feature pictures of one size, (n, h, w, 3)."""
    luma, numbers, counts, spreads = measure_stack(stack)
    totals = np.full(len(stack), luma[0].size if len(luma) else 0)
    return Reduced(numbers, counts, spreads, totals, *reduce_luma(luma))


def tell_features(reduced: Reduced) -> dict[str, Any]:
    """Return {column: n values, NaN for none} of n images, without `transparent`."""
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
