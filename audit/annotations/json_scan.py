"""The outline of a large JSON document, found without parsing it: where each list's elements lie.

A 300 MB file as Python objects takes over 3 GB. Here compiled code runs over the bytes, knowing
only strings and brackets, and cuts the lists of the document into elements; these are then parsed
some thousands at a time. Where the document ends too early, nests too deep or holds what is no
JSON, the byte is known. About 0.4 GB/s; memory: the boundaries of one chunk.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Generator, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from audit.neighbors.kernels.compiled import compiled_on_first_call, plain_functions

Bytes = NDArray[np.uint8]
Positions = NDArray[np.int64]
OK, TRUNCATED, WRONG, DEEP, MORE = 0, 1, 2, 3, 4
DEPTH = 100  # a deeper nesting is a mistake or an attack: COCO needs five levels
CHUNK = 1 << 15  # elements
CHUNK_BYTES = 8 << 20
SMALL = 2 << 20  # bytes of a document up to which it is read without compiled code
LINE_BLOCK = 16 << 20  # bytes in which line ends are looked for together
KEYS = 64  # keys of one element that are compared with each other


@dataclass(frozen=True, slots=True)
class Broken:
    """Where the outline ends early: what is wrong, and the byte."""

    status: int
    at: int


@dataclass(frozen=True, slots=True)
class Elements:
    """Consecutive elements of the list `key`: number of the first, boundaries, repeated keys."""

    key: str
    first: int
    starts: Positions
    ends: Positions
    repeats: NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Value:
    """A member of the document that is not a wanted list: its key and boundaries."""

    key: str
    start: int
    end: int


@compiled_on_first_call
def _skip_space(text: Bytes, at: int) -> int:
    while at < len(text) and (text[at] == 32 or (9 <= text[at] <= 13 and text[at] not in (11, 12))):
        at += 1
    return at


@compiled_on_first_call
def _skip_string(text: Bytes, at: int) -> int:
    """Return the position after the string that begins at `at`, -1 if it does not end."""
    at += 1
    n = len(text)
    while at < n:
        if text[at] == 92:
            at += 2
        elif text[at] == 34:
            return at + 1
        else:
            at += 1
    return -1


@compiled_on_first_call
def _string_hash(text: Bytes, start: int, end: int) -> int:
    value = np.uint64(1469598103934665603)
    for at in range(start, end):
        value = (value ^ np.uint64(text[at])) * np.uint64(1099511628211)
    return int(np.int64(value))


@compiled_on_first_call
def _skip_nested(text: Bytes, at: int, seen: Positions) -> tuple[int, int, bool]:
    """Skip the object or list at `at`; returns its end, a status, whether a key repeats in it."""
    n, depth, n_seen, repeats, expects_key = len(text), 0, 0, False, False
    while at < n:
        c = text[at]
        if c == 34:
            end = _skip_string(text, at)
            if end < 0:
                return n, 1, repeats
            if depth == 1 and expects_key and n_seen < len(seen):
                value = _string_hash(text, at, end)
                for k in range(n_seen):
                    repeats = repeats or seen[k] == value
                seen[n_seen] = value
                n_seen += 1
            expects_key = False
            at = end
            continue
        if c == 123 or c == 91:
            depth += 1
            if depth > 100:
                return at, 3, repeats
            expects_key = c == 123
        elif c == 125 or c == 93:
            depth -= 1
            if depth == 0:
                return at + 1, 0, repeats
        elif c == 44:
            expects_key = True
        at += 1
    return n, 1, repeats


@compiled_on_first_call
def _skip_value(text: Bytes, at: int, seen: Positions) -> tuple[int, int, bool]:
    """Skip any value at `at`; returns its end, a status, whether a key repeats in an object."""
    n = len(text)
    if at >= n:
        return n, 1, False
    c = text[at]
    if c == 123:
        return _skip_nested(text, at, seen)
    if c == 91:
        return _skip_nested(text, at, seen[:0])
    if c == 34:
        end = _skip_string(text, at)
        return (n, 1, False) if end < 0 else (end, 0, False)
    start = at
    while at < n and text[at] not in (44, 93, 125, 32, 9, 10, 13, 58, 34, 123, 91):
        at += 1
    if at == n:
        return n, 1, False
    return at, (2 if at == start else 0), False


@compiled_on_first_call
def _split_list(
    text: Bytes, at: int, starts: Positions, ends: Positions, repeats: NDArray[np.bool_], most: int
) -> tuple[int, int, int]:
    """Fill the boundaries of elements from `at` on, which follows `[` or a comma.

    Returns how many, the position reached, and a status: 0 the list ended, 4 there are more.
    """
    seen = np.empty(64, np.int64)
    n, count, begin = len(text), 0, at
    while True:
        at = _skip_space(text, at)
        if at >= n:
            return count, n, 1
        if text[at] == 93 and at > 0:
            previous = at - 1
            while previous >= 0 and text[previous] in (32, 9, 10, 13):
                previous -= 1
            return count, at + 1, (2 if text[previous] == 44 else 0)
        end, status, again = _skip_value(text, at, seen)
        if status != 0:
            return count, end, status
        starts[count], ends[count], repeats[count] = at, end, again
        count += 1
        at = _skip_space(text, end)
        if at >= n:
            return count, n, 1
        if text[at] == 44:
            at += 1
            if count == len(starts) or at - begin > most:
                return count, at, 4
        elif text[at] != 93:
            return count, at, 2


def _text_hash(text: bytes, start: int, end: int) -> int:
    return hash(text[start:end])


# The same functions for small documents, where loading compiled code takes longer than reading.
_PLAIN = plain_functions(globals(), _string_hash=_text_hash)


@dataclass(frozen=True, slots=True)
class _Scanner:
    """The functions that walk over a text, and the text in the form that they take."""

    text: Any
    names: Mapping[str, Any]

    def skip_space(self, at: int) -> int:
        return int(self.names["_skip_space"](self.text, at))

    def skip_string(self, at: int) -> int:
        return int(self.names["_skip_string"](self.text, at))

    def skip_value(self, at: int) -> tuple[int, int]:
        end, status, _ = self.names["_skip_value"](self.text, at, np.empty(0, np.int64))
        return int(end), int(status)

    def split_list(
        self, at: int, starts: Positions, ends: Positions, repeats: NDArray[np.bool_]
    ) -> tuple[int, int, int]:
        found = self.names["_split_list"](self.text, at, starts, ends, repeats, CHUNK_BYTES)
        return int(found[0]), int(found[1]), int(found[2])


def _scanner(text: Bytes, small: int) -> _Scanner:
    if len(text) <= small:
        return _Scanner(text.tobytes(), _PLAIN)
    return _Scanner(text, globals())


def scan_document(
    text: Bytes, lists: Collection[str], small: int = SMALL
) -> Iterator[Elements | Value | Broken]:
    """Yield the members of the object `text`: those in `lists` cut into elements, some at a time.

    Ends with a `Broken` where the document is not whole. A text of up to `small` bytes is read
    without compiled code, with the same result.
    """
    scanner = _scanner(text, small)
    at = 3 if bytes(text[:3]) == b"\xef\xbb\xbf" else 0
    at = scanner.skip_space(at)
    if at >= len(text) or text[at] != ord("{"):
        yield Broken(TRUNCATED if at >= len(text) else WRONG, at)
        return
    at = scanner.skip_space(at + 1)
    while at < len(text) and text[at] == ord('"'):
        end = scanner.skip_string(at)
        colon = len(text) if end < 0 else scanner.skip_space(end)
        if colon >= len(text) or text[colon] != ord(":"):
            yield Broken(TRUNCATED if colon >= len(text) else WRONG, colon)
            return
        key, start = _text_of(text, at, end), scanner.skip_space(colon + 1)
        if key in lists and start < len(text) and text[start] == ord("["):
            at, status = yield from _elements(scanner, start + 1, key)
        else:
            at, status = scanner.skip_value(start)
            if status == OK:
                yield Value(key, start, at)
        if status != OK:
            yield Broken(status, at)
            return
        at = scanner.skip_space(at)
        if at < len(text) and text[at] == ord(","):
            at = scanner.skip_space(at + 1)
        elif at < len(text) and text[at] == ord("}"):
            rest = scanner.skip_space(at + 1)
            if rest < len(text):
                yield Broken(WRONG, rest)
            return
        else:
            break
    if not (at < len(text) and text[at] == ord("}")):
        yield Broken(TRUNCATED if at >= len(text) else WRONG, at)


def _elements(scanner: _Scanner, at: int, key: str) -> Generator[Elements, None, tuple[int, int]]:
    first, status = 0, MORE
    while status == MORE:
        starts, ends = np.empty(CHUNK, np.int64), np.empty(CHUNK, np.int64)
        repeats = np.empty(CHUNK, np.bool_)
        n, at, status = scanner.split_list(at, starts, ends, repeats)
        if n or first == 0:  # an empty list is a list as well
            yield Elements(key, first, starts[:n], ends[:n], repeats[:n])
        first += n
    return at, status


def _text_of(text: Bytes, start: int, end: int) -> str:
    raw = bytes(text[start:end])
    try:
        return str(json.loads(raw))
    except ValueError:
        return raw.decode("utf-8", "replace")


def count_lines(text: Bytes, start: int, end: int) -> int:
    """Return the line ends between two bytes, in blocks: to compare a gigabyte takes another."""
    blocks = range(start, end, LINE_BLOCK)
    return sum(int((text[i : min(i + LINE_BLOCK, end)] == 10).sum()) for i in blocks)


def lines_before(text: Bytes, positions: Positions, origin: int, line: int) -> Positions:
    """Return the line (from 1) of each position; `line` is that of the byte `origin`."""
    if not len(positions):
        return positions
    near = max(origin, int(positions[0]) - LINE_BLOCK)
    line, origin = line + count_lines(text, origin, near), near
    breaks = np.flatnonzero(text[origin : int(positions[-1])] == 10)
    return np.searchsorted(breaks, positions - origin, side="left") + line


def as_lines(text: Bytes, part: Elements) -> bytes:
    """Return the elements one a line: line ends inside become blanks, commas between line ends."""
    low = int(part.starts[0])
    piece = np.array(text[low : int(part.ends[-1])])
    piece[(piece == 10) | (piece == 13)] = 32
    after, gaps = part.ends[:-1] - low, part.starts[1:] - part.ends[:-1]
    widest = int(gaps.max()) if len(gaps) else 0
    if widest > 256:  # long runs of blanks: too rare to be worth more than a plain loop
        for start, gap in zip(after.tolist(), gaps.tolist(), strict=True):
            piece[start : start + gap] = 32
    else:
        for k in range(widest):
            piece[after[gaps > k] + k] = 32
    piece[after] = 10
    return piece.tobytes()
