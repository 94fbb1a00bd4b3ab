"""BLAKE3 of many short keys, compiled: the first 8 bytes of the hash of each key of up to 64 bytes.

The package hashes one key per Python call and takes four times as long (figures in
`random_numbers`). A message of at most 64 bytes is a single block that is start, end and root at
once, so one compression function is all of BLAKE3 that is needed. The constants and the round
structure are from the specification: O'Connor, Aumasson, Neves and Wilcox-O'Hearn (2020), "BLAKE3:
one function, fast everywhere", sections 2.2 and 2.4. A module of its own because importing numba is
slow.
"""

from __future__ import annotations

import numba
import numpy as np
from numpy.typing import NDArray

IV = np.array(
    [
        0x6A09E667, 0xBB67AE85, 0x3C6EF372, 0xA54FF53A,
        0x510E527F, 0x9B05688C, 0x1F83D9AB, 0x5BE0CD19,
    ],
    np.uint32,
)  # fmt: skip
PERMUTATION = np.array([2, 6, 3, 10, 7, 0, 4, 13, 1, 11, 12, 5, 9, 14, 15, 8], np.int64)
# The four words that each of the eight quarter-rounds mixes: four columns, then four diagonals.
QUARTERS = np.array(
    [
        [0, 4, 8, 12], [1, 5, 9, 13], [2, 6, 10, 14], [3, 7, 11, 15],
        [0, 5, 10, 15], [1, 6, 11, 12], [2, 7, 8, 13], [3, 4, 9, 14],
    ],
    np.int64,
)  # fmt: skip
FLAGS = np.uint32(1 | 2 | 8)  # CHUNK_START, CHUNK_END, ROOT
ROUNDS = 7


@numba.njit(cache=True, inline="always")  # type: ignore[untyped-decorator]
def _rotate(x: np.uint32, by: int) -> np.uint32:
    return np.uint32((x >> np.uint32(by)) | (x << np.uint32(32 - by)))


@numba.njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def first_words(data: NDArray[np.uint8], offsets: NDArray[np.int64]) -> NDArray[np.uint64]:
    """Return the hash's first 8 bytes for each key `data[offsets[i]:offsets[i+1]]`.

    Keys longer than 64 bytes get a meaningless number: the caller hashes those itself.
    """
    count = offsets.size - 1
    result = np.empty(count, np.uint64)
    state, words, moved = np.empty(16, np.uint32), np.empty(16, np.uint32), np.empty(16, np.uint32)
    for i in range(count):
        start, length = offsets[i], min(offsets[i + 1] - offsets[i], 64)
        for w in range(16):
            word = np.uint32(0)
            for b in range(4):
                at = 4 * w + b
                if at < length:
                    word |= np.uint32(data[start + at]) << np.uint32(8 * b)
            words[w] = word  # little-endian, zeros behind the end of the key
        # A first and only chunk starts from IV, with counter 0.
        state[:8] = IV
        state[8:12] = IV[:4]
        state[12], state[13] = np.uint32(0), np.uint32(0)
        state[14], state[15] = np.uint32(length), FLAGS
        for r in range(ROUNDS):
            for q in range(8):
                a, b4, c, d = QUARTERS[q, 0], QUARTERS[q, 1], QUARTERS[q, 2], QUARTERS[q, 3]
                state[a] = state[a] + state[b4] + words[2 * q]
                state[d] = _rotate(state[d] ^ state[a], 16)
                state[c] = state[c] + state[d]
                state[b4] = _rotate(state[b4] ^ state[c], 12)
                state[a] = state[a] + state[b4] + words[2 * q + 1]
                state[d] = _rotate(state[d] ^ state[a], 8)
                state[c] = state[c] + state[d]
                state[b4] = _rotate(state[b4] ^ state[c], 7)
            if r < ROUNDS - 1:
                for w in range(16):
                    moved[w] = words[PERMUTATION[w]]
                words[:] = moved  # the next round mixes the same words in another order
        # Output word i is state[i] ^ state[i + 8]; the first two are the first 8 bytes.
        low, high = state[0] ^ state[8], state[1] ^ state[9]
        result[i] = np.uint64(low) | (np.uint64(high) << np.uint64(32))
    return result
