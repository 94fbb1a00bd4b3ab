"""Label files of YOLO that are written as they should be, taken apart in one compiled pass.

A file is plain where each of its lines is a class number and at least four decimal numbers, with
blanks between. Such files need no splitting of texts: the pass gives every line its class, its
numbers and its place. A file with anything else is left to the reader that says what is wrong with
it. Numbers are rounded correctly: of up to 15 digits by one division, others by Python.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from audit.neighbors.kernels.compiled import compiled_on_first_call

Bytes = NDArray[np.uint8]
Positions = NDArray[np.int64]
MOST_CLASS = 1_000_000
_POWERS = 10.0 ** np.arange(19)


@dataclass(frozen=True, slots=True)
class PlainLines:
    """Lines of plain files, a row each; numbers of row r: numbers[starts[r]:starts[r + 1]].

    `owner` is the position of the file, `line` counts from 1. `plain` says of each file whether it
    was read here.
    """

    owner: Positions
    line: Positions
    label: Positions
    starts: Positions
    numbers: NDArray[np.float64]
    plain: NDArray[np.bool_]

    def of_length(self, n: int) -> PlainLines:
        """Return the lines of those files all of whose lines have `n` numbers."""
        counts, plain = np.diff(self.starts), self.plain.copy()
        plain[self.owner[counts != n]] = False
        kept = plain[self.owner]
        starts = n * np.arange(int(kept.sum()) + 1)
        numbers = self.numbers[np.repeat(kept, counts)]
        return PlainLines(
            self.owner[kept], self.line[kept], self.label[kept], starts, numbers, plain
        )


@compiled_on_first_call
def _number(text: Bytes, start: int, end: int, powers: Any) -> tuple[int, float]:
    """Read a token: 0 and its value, 1 where Python must read it, 2 where it is no plain number."""
    at, sign = start, 1.0
    if text[at] == 45:
        sign, at = -1.0, at + 1
    mantissa, digits, after, dot = np.int64(0), 0, 0, False
    first = at
    while at < end:
        c = text[at]
        if 48 <= c <= 57:
            if digits < 18:
                mantissa = mantissa * 10 + (c - 48)
            digits += 1
            after += 1 if dot else 0
        elif c == 46 and not dot and at > first and at + 1 < end:
            dot = True
        elif (c == 101 or c == 69) and digits > 0 and text[at - 1] != 46 and at + 1 < end:
            return _exponent(text, at + 1, end), 0.0
        else:
            return 2, 0.0
        at += 1
    if digits == 0:
        return 2, 0.0
    if digits > 15:
        return 1, 0.0
    return 0, sign * (mantissa / powers[after])


@compiled_on_first_call
def _exponent(text: Bytes, at: int, end: int) -> int:
    if text[at] == 45 or text[at] == 43:
        at += 1
    if at >= end or end - at > 3:
        return 2
    for k in range(at, end):
        if text[k] < 48 or text[k] > 57:
            return 2
    return 1


@compiled_on_first_call
def _class_number(text: Bytes, start: int, end: int) -> int:
    """Return a class number as it is written without further zeros, -1 for anything else."""
    if end - start > 6 or (text[start] == 48 and end - start > 1):
        return -1
    value = 0
    for at in range(start, end):
        if text[at] < 48 or text[at] > 57:
            return -1
        value = value * 10 + text[at] - 48
    return value


@compiled_on_first_call
def _read(
    text: Bytes,
    offsets: Positions,
    powers: Any,
    rows: Positions,
    numbers: Any,
    hard: Positions,
    plain: NDArray[np.bool_],
) -> tuple[int, int, int]:
    """Fill `rows` (owner, line, class, first number); returns rows, numbers and hard tokens."""
    n_rows, n_numbers, n_hard = 0, 0, 0
    for f in range(len(offsets) - 1):
        at, end, line, good = offsets[f], offsets[f + 1], 1, True
        kept_rows, kept_numbers, kept_hard = n_rows, n_numbers, n_hard
        while at < end and good:
            tokens, first, label = 0, n_numbers, 0
            while at < end and text[at] != 10:
                c = text[at]
                if c == 32 or c == 9 or c == 13:
                    at += 1
                    continue
                start = at
                while at < end and text[at] > 32 and text[at] < 127:
                    at += 1
                if at == start:  # a control character, or no ASCII
                    good = False
                    break
                if tokens == 0:
                    label = _class_number(text, start, at)
                    good = label >= 0
                else:
                    kind, value = _number(text, start, at, powers)
                    good = kind < 2
                    if kind == 1:
                        hard[n_hard, 0], hard[n_hard, 1], hard[n_hard, 2] = n_numbers, start, at
                        n_hard += 1
                    numbers[n_numbers] = value
                    n_numbers += 1
                tokens += 1
                if not good:
                    break
            if not good or 0 < tokens < 5:
                good = False
                break
            if tokens:
                rows[n_rows, 0], rows[n_rows, 1] = f, line
                rows[n_rows, 2], rows[n_rows, 3] = label, first
                n_rows += 1
            at, line = at + 1, line + 1
        plain[f] = good
        if not good:
            n_rows, n_numbers, n_hard = kept_rows, kept_numbers, kept_hard
    return n_rows, n_numbers, n_hard


def read_plain_lines(texts: list[bytes]) -> PlainLines:
    """Return the lines of the plain files among `texts`."""
    joined = b"".join(texts)
    text = np.frombuffer(joined, np.uint8)
    offsets = np.concatenate([[0], np.cumsum([len(t) for t in texts], dtype=np.int64)])
    # A token takes two bytes at least, a line ten.
    rows = np.empty((len(text) // 10 + len(texts) + 1, 4), np.int64)
    numbers = np.empty(len(text) // 2 + 1)
    hard = np.empty((len(text) // 4 + 1, 3), np.int64)
    plain = np.zeros(len(texts), np.bool_)
    n, n_numbers, n_hard = _read(text, offsets, _POWERS, rows, numbers, hard, plain)
    for place, start, end in hard[:n_hard].tolist():
        numbers[place] = float(joined[start:end])
    owner, line, label, first = (np.ascontiguousarray(column) for column in rows[:n].T)
    starts = np.concatenate([first, [n_numbers]])
    return PlainLines(owner, line, label, starts, numbers[:n_numbers], plain)
