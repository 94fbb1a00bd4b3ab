"""Damage that every decoder accepts: a walk over the codes of a JPEG.

One changed byte in the coded data of a JPEG usually leaves a file that decodes without a warning,
because the codes fall into step again after a few blocks. What stays are three traces, and each is
asked for here, after the decoder had nothing to say:

- **Codes that no encoder writes**: while the codes are out of step, a run of zeros often goes past
  the 63rd coefficient of its block. Decoders drop what is beyond; here it is counted.
- **Means beyond black or white**: a block's mean is stored as a difference to that of the block
  before, so one wrong difference shifts all that follow, often out of the range of a picture.
- **A step** in the picture, where the shift stays within the range.

The codes are walked in baseline files whose scan has all components. Sources: ITU-T T.81, F.2.2 and
figure F.16; the limits of a mean from its A.3.3.

A step is what one wrong difference of means leaves: all blocks after it are shifted, so the
picture has an edge that begins in the middle of a row of blocks, runs along the grid to the
right border, goes on one row lower at the left border and ends below its beginning. Its log odds
compare the windows of one row's length of the jumps across the grid (Student's t, 3 degrees of
freedom, scaled by their own median) with no jump at all, and with the jump of one whole row: that
is how frames and horizons look.

The step is looked for in progressive files too. It needs 8 blocks in a row and 4 rows. Where
restart markers end a shift before it has gone once around there is no step to see.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any, NamedTuple

import numpy as np
from simplejpeg import encode_jpeg

from audit.machine.compiled import compiled_on_first_call
from audit.picture.pixels import Pixels

FAST_BITS = 10  # codes up to this length are looked up at once
FAST_MASK = (1 << FAST_BITS) - 1
END_OF_BLOCK = 128  # coefficients to skip at the end of a block: more than any run
BEYOND = 64  # of a stored mean: 8 levels past white, which an encoder's own overshoot may reach
DC, AC = 0, 16


@dataclass(frozen=True, slots=True)
class Scan:
    """What is needed to walk the codes of one baseline scan."""

    start: int
    blocks: tuple[int, ...]  # component of each block of an MCU
    n_mcus: int
    restart: int
    tables: tuple[tuple[bytes, bytes], ...]  # Huffman tables (DC, AC) by component
    steps: tuple[int, ...]  # quantisation step of the mean by component


def walk_columns(
    data: bytes, stored: Pixels, sampling: tuple[int, int], means: Sequence[int]
) -> dict[str, Any]:
    """Return `jpeg_faults` and `jpeg_shift` of a file that decodes without a warning.

    `stored` are its pixels as decoded, (h, w) or (h, w, 3); `sampling` is that of luma over chroma,
    `means` are the quantisation steps of the mean by component.
    """
    return {
        "jpeg_faults": count_faults(data),
        "jpeg_shift": shift_evidence(stored, sampling, means),
    }


def count_faults(data: bytes) -> int | None:
    """Return the blocks that no encoder writes; None where the scan cannot be walked."""
    try:
        scan = read_scan(data)
        if scan is None:
            return None
        tables = [_table(t, of_means=not n) for pair in scan.tables for n, t in enumerate(pair)]
    except (IndexError, KeyError, ValueError):
        return None
    faults = _walk(
        np.frombuffer(data, np.uint8),
        scan.start,
        np.concatenate([t.fast for t in tables]),
        np.stack([t.limits for t in tables]),
        np.stack([t.advances for t in tables]),
        np.array(scan.blocks, np.int64),
        scan.n_mcus,
        scan.restart,
        np.array(scan.steps, np.int64),
    )
    return int(faults)


@cache
def warm_up_walk() -> None:
    """Load or compile the kernels, so that no file's time limit pays for it."""
    side = 8 * (FEWEST_BLOCKS + FEWEST_ROWS)
    stored = np.zeros((side, side, 3), np.uint8)
    walk_columns(encode_jpeg(stored), stored, (1, 1), (1, 1, 1))


# ---- markers ----


class _Frame(NamedTuple):
    height: int
    width: int
    components: tuple[tuple[int, int, int, int], ...]  # id, across, down, quantisation table


def read_scan(data: bytes) -> Scan | None:
    """Return the first scan; None where it is not baseline or has not all components.

    Raises IndexError, KeyError or ValueError for headers that are not as they should be.
    """
    at, restart = 2, 0
    frame: _Frame | None = None
    steps: dict[int, int] = {}
    codes: dict[int, bytes] = {}
    while data[at] == 0xFF:
        marker = data[at + 1]
        if marker == 0xFF:  # a fill byte
            at += 1
            continue
        end = at + 2 + int.from_bytes(data[at + 2 : at + 4], "big")
        body = data[at + 4 : end]
        if marker == 0xDB:
            steps |= _first_steps(body)
        elif marker == 0xC4:
            codes |= _codes(body)
        elif marker == 0xDD:
            restart = int.from_bytes(body[:2], "big")
        elif marker in (0xC0, 0xC1) and body[0] == 8:
            frame = _frame(body)
        elif 0xC0 <= marker <= 0xCF and marker != 0xC8:
            return None
        elif marker == 0xDA:
            return _scan(end, body, frame, steps, codes, restart) if frame else None
        at = max(end, at + 4)
    return None


def _first_steps(body: bytes) -> dict[int, int]:
    """Return the quantisation step of the mean by table."""
    steps, at = {}, 0
    while at < len(body):
        wide, table = body[at] >> 4, body[at] & 15
        steps[table] = int.from_bytes(body[at + 1 : at + 2 + wide], "big")
        at += 1 + 64 * (1 + wide)
    return steps


def _codes(body: bytes) -> dict[int, bytes]:
    """Return Huffman tables by class and number: 16 counts, then the symbols."""
    tables, at = {}, 0
    while at < len(body):
        size = 16 + sum(body[at + 1 : at + 17])
        tables[body[at]] = body[at + 1 : at + 1 + size]
        at += 1 + size
    return tables


def _frame(body: bytes) -> _Frame:
    parts = [body[6 + 3 * n : 9 + 3 * n] for n in range(body[5])]
    return _Frame(
        int.from_bytes(body[1:3], "big"), int.from_bytes(body[3:5], "big"),
        tuple((p[0], p[1] >> 4, p[1] & 15, p[2]) for p in parts),
    )  # fmt: skip


def _scan(
    start: int, body: bytes, frame: _Frame, steps: dict[int, int], codes: dict[int, bytes],
    restart: int,
) -> Scan | None:  # fmt: skip
    parts = frame.components
    if body[0] != len(parts) or [body[1 + 2 * n] for n in range(body[0])] != [p[0] for p in parts]:
        return None
    if len(parts) == 1:  # a scan of one component has no MCUs of several blocks
        parts = ((parts[0][0], 1, 1, parts[0][3]),)
    across, down = max(p[1] for p in parts), max(p[2] for p in parts)
    chosen = [body[2 + 2 * n] for n in range(body[0])]
    return Scan(
        start,
        tuple(n for n, p in enumerate(parts) for _ in range(p[1] * p[2])),
        -(-frame.width // (8 * across)) * -(-frame.height // (8 * down)),
        restart,
        tuple((codes[DC | t >> 4], codes[AC | t & 15]) for t in chosen),
        tuple(steps[p[3]] for p in parts),
    )


class _Codes(NamedTuple):
    """How a Huffman table is read; an *advance* is bits to skip << 8 | coefficients to skip."""

    fast: np.ndarray[Any, Any]  # advance by the next FAST_BITS bits, 0 for a longer code
    limits: np.ndarray[Any, Any]  # by length: first code, place of its symbol, how many
    advances: np.ndarray[Any, Any]  # by place


@lru_cache(maxsize=64)
def _table(table: bytes, *, of_means: bool) -> _Codes:
    """Return the lookup of a Huffman table; ValueError where its codes overflow.

    An advance of means has the bits of its code only, and the size of the value after it.
    """
    fast, limits = np.zeros(1 << FAST_BITS, np.int32), np.zeros((17, 3), np.int64)
    advances = np.zeros(256, np.int64)
    symbols = np.frombuffer(table[16:], np.uint8).astype(np.int64)
    if len(symbols) > 256:
        raise ValueError("more than 256 codes")
    code = first = 0
    for length in range(1, 17):
        n = table[length - 1]
        limits[length] = code, first, n
        if code + n > 1 << length:
            raise ValueError("codes do not fit their length")
        places = slice(first, first + n)
        advances[places] = _advances(symbols[places], length, of_means)
        if length <= FAST_BITS and n:
            wide = 1 << (FAST_BITS - length)
            fast[code * wide : (code + n) * wide] = np.repeat(advances[places], wide)
        code, first = (code + n) << 1, first + n
    return _Codes(fast, limits, advances)


def _advances(symbols: np.ndarray[Any, Any], length: int, of_means: bool) -> np.ndarray[Any, Any]:
    if of_means:
        return (length << 8) | symbols
    run, size = symbols >> 4, symbols & 15
    skipped = np.where(symbols == 0, END_OF_BLOCK, run + 1)
    return ((length + size) << 8) | skipped


@compiled_on_first_call
def _long_advance(table: int, bits: Any, held: Any, limits: Any, advances: Any) -> int:
    """Return the advance of a code that is longer than FAST_BITS, 0 for none."""
    for length in range(FAST_BITS + 1, 17):
        place = ((bits >> (held - length)) & ((1 << length) - 1)) - limits[table, length, 0]
        if 0 <= place < limits[table, length, 2]:
            return int(advances[table, limits[table, length, 1] + place])
    return 0


@compiled_on_first_call
def _join(fast: Any, joined: Any, base: int) -> None:
    """Fill the advances of all whole codes and values that the next FAST_BITS bits hold.

    Fewer than 64 coefficients; the end of a block is the last of them.
    """
    for window in range(1 << FAST_BITS):
        used = skipped = 0
        while True:
            found = fast[base + ((window << used) & FAST_MASK)]
            if found == 0 or used + (found >> 8) > FAST_BITS:
                break
            if found & 255 == END_OF_BLOCK:
                used, skipped = used + (found >> 8), skipped + END_OF_BLOCK
                break
            if skipped + (found & 255) > 63:
                break
            used, skipped = used + (found >> 8), skipped + (found & 255)
        joined[base + window] = used << 8 | skipped


@compiled_on_first_call
def _walk(
    data: Any, at: int, fast: Any, limits: Any, advances: Any, blocks: Any, n_mcus: int,
    restart: int, steps: Any,
) -> int:  # fmt: skip
    """Return the blocks with a run past the 63rd coefficient or a mean beyond black or white."""
    joined = np.zeros(len(fast), np.int32)
    for table in range(1, 2 * len(steps), 2):
        _join(fast, joined, table << FAST_BITS)
    size, bits, held = len(data), np.int64(0), np.int64(0)
    means = np.zeros(len(steps), np.int64)
    faults, until, missing = 0, restart, 0
    for _ in range(n_mcus):
        if restart > 0 and until == 0:
            while at + 1 < size and not (data[at] == 0xFF and 0xD0 <= data[at + 1] <= 0xD7):
                at += 1
            at += 2
            bits, held, until, missing = np.int64(0), np.int64(0), restart, 0
            means[:] = 0
        until -= 1
        for component in blocks:
            k, table = 0, 2 * component
            fault = False
            while k < 64:
                if held < 31:  # 16 bits of a code and 15 of its value
                    # four bytes at once, where none of them may begin a marker
                    if (
                        at + 4 <= size
                        and data[at] != 0xFF
                        and data[at + 1] != 0xFF
                        and data[at + 2] != 0xFF
                        and data[at + 3] != 0xFF
                    ):
                        word = np.int64(data[at]) << 24 | np.int64(data[at + 1]) << 16
                        word |= np.int64(data[at + 2]) << 8 | np.int64(data[at + 3])
                        bits, held, at = (bits & 0x3FFFFFFF) << 32 | word, held + 32, at + 4
                    while held < 31:
                        value = np.int64(data[at]) if at < size else np.int64(0xFF)
                        if value != 0xFF:
                            at += 1
                        elif at + 1 < size and data[at + 1] == 0:
                            at += 2
                        else:  # a marker: the data end, with zeros for what is asked beyond
                            value = np.int64(0)
                            missing += 1
                        bits, held = (bits & 0x3FFFFFFF) << 8 | value, held + 8
                    if missing > 16:
                        return faults
                place = (table << FAST_BITS) + ((bits >> (held - FAST_BITS)) & FAST_MASK)
                several = joined[place]
                # a block may end at its last coefficient, so not beyond it with the codes after it
                if several > 0 and k + (several & 63) < 64:
                    held -= several >> 8
                    k += several & 255
                    continue
                found = fast[place]
                if found == 0:
                    found = _long_advance(table, bits, held, limits, advances)
                    if found == 0:
                        return faults + 1
                held -= found >> 8
                if k > 0:
                    k += found & 255
                    continue
                count = found & 255
                if count > 15:
                    return faults + 1
                if count > 0:
                    held -= count
                    step = (bits >> held) & ((1 << count) - 1)
                    if step < 1 << (count - 1):
                        step += 1 - (1 << count)
                    means[component] += step
                    limit = 1024 + steps[component] + BEYOND
                    fault = abs(means[component] * steps[component]) > limit
                table, k = table + 1, 1
            faults += fault or 64 < k < END_OF_BLOCK
    return faults


# ---- the step ----


FEWEST_BLOCKS, FEWEST_ROWS = 8, 4
# A step: so much of the window is nearer to it than to none, at most so much beside the window.
INSIDE, HALF, BESIDE = 0.85, 0.6, 0.35
# In a smooth picture the means of neighbours differ by one quantisation step along a contour.
CONTOUR = 1.5


def shift_evidence(stored: Pixels, sampling: tuple[int, int], means: Sequence[int]) -> float | None:
    """Return the log odds that all blocks after one are shifted; None where it cannot be told.

    `means` are the quantisation steps of the mean by component: 8 of them are one level.
    """
    across, down = 8 * sampling[0], 8 * sampling[1]
    height, width = stored.shape[:2]
    rows = np.arange(down, height - 4, down)
    if -(-width // across) < FEWEST_BLOCKS or len(rows) < FEWEST_ROWS or not means:
        return None
    pixels = stored.reshape(height, width, -1)
    jumps = _jumps(pixels, rows, across, wide=down == 16)
    return max(
        float(_step(*_scaled(jump.ravel(), CONTOUR * mean / 8), jump.shape[1]))
        for jump, mean in zip(jumps, means, strict=False)
    )


@compiled_on_first_call
def _jumps(stored: Any, rows: Any, across: int, *, wide: bool) -> Any:
    """Return float64 (channels, rows, blocks): what lies beyond the slope on both sides of a row.

    In levels, of Y, or of Y, Cb and Cr. Halved chroma is smeared over four lines, so its jump is
    taken `wide` of the edge.
    """
    width, channels = stored.shape[1], stored.shape[2]
    n_blocks = -(-width // across)
    jumps = np.zeros((channels, len(rows), n_blocks))
    sums = np.zeros((8, 3), np.int64)
    for number, row in enumerate(rows):
        for block in range(n_blocks):
            first, last = block * across, min((block + 1) * across, width)
            for line in range(8):
                if line in (1, 6) or (line in (0, 7) and not wide):
                    continue
                pixels = stored[row - 4 + line]
                red, green, blue = np.int64(0), np.int64(0), np.int64(0)
                if channels == 1:
                    for x in range(first, last):
                        red += pixels[x, 0]
                else:
                    for x in range(first, last):
                        red += pixels[x, 0]
                        green += pixels[x, 1]
                        blue += pixels[x, 2]
                sums[line, 0], sums[line, 1], sums[line, 2] = red, green, blue
            narrow = (1.5 * (sums[4] - sums[3]) - 0.5 * (sums[5] - sums[2])) / (last - first)
            if channels == 1:
                jumps[0, number, block] = narrow[0]
                continue
            chroma = narrow
            if wide:
                slope = 0.75 * (sums[7] - sums[5] + sums[2] - sums[0])
                chroma = (sums[5] - sums[2] - slope) / (last - first)
            # ITU-T T.871
            light = 0.299 * chroma[0] + 0.587 * chroma[1] + 0.114 * chroma[2]
            jumps[0, number, block] = 0.299 * narrow[0] + 0.587 * narrow[1] + 0.114 * narrow[2]
            jumps[1, number, block] = (chroma[2] - light) / 1.772
            jumps[2, number, block] = (chroma[0] - light) / 1.402
    return jumps


def _scaled(jumps: np.ndarray[Any, Any], least: float) -> tuple[np.ndarray[Any, Any], float]:
    """Return the jumps over their scale, and `least` likewise."""
    # 1.4826: a normal's deviation over its median of |x|; 0.15: what rounding to levels leaves
    sizes = np.abs(jumps)
    sizes.partition(len(sizes) // 2)
    scale = 1.4826 * sizes[len(sizes) // 2] + 0.15
    return jumps / scale, least / scale


@compiled_on_first_call
def _step(jumps: Any, least: float, width: int) -> float:
    """Return the best evidence of a step that begins within a row and is at least `least`."""
    n, best = len(jumps), 0.0
    signs = np.zeros(n + 1, np.int64)
    for i in range(n):
        signs[i + 1] = signs[i] + (jumps[i] > 0) - (jumps[i] < 0)
    for begin in range(n - width):
        place = begin % width
        # most of a window is nearer to the step than to none, so most of it has its sign
        if place == 0 or abs(signs[begin + width] - signs[begin]) < (2 * INSIDE - 1) * width:
            continue
        window = jumps[begin : begin + width]
        step = np.median(window)
        if abs(step) < least:
            continue
        row = begin - place
        gain = _gain(window, step)
        for line in (row, row + width):
            whole = jumps[line : line + width]
            gain = min(gain, _gain(window, step) - _gain(whole, np.median(whole)))
        if gain <= best:
            continue
        here = _nearer(jumps, begin, row + width, step)
        below = _nearer(jumps, row + width, begin + width, step)
        beside = _nearer(jumps, row, begin, step) + _nearer(
            jumps, begin + width, row + 2 * width, step
        )
        sides = here >= HALF * (width - place) and below >= HALF * place
        if sides and here + below >= INSIDE * width and beside <= BESIDE * width:
            best = gain
    return best


@compiled_on_first_call
def _gain(window: Any, step: float) -> float:
    """Return the log odds of a step over none: Student's t with 3 degrees of freedom."""
    total = 0.0
    for value in window:
        total += np.log1p(value * value / 3) - np.log1p((value - step) ** 2 / 3)
    return 2 * total


@compiled_on_first_call
def _nearer(jumps: Any, first: int, last: int, step: float) -> int:
    """Return how many of these jumps are nearer to the step than to none."""
    count = 0
    for i in range(first, last):
        count += abs(jumps[i] - step) < abs(jumps[i])
    return count
