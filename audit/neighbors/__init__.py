"""Near-duplicates: complete candidates, aligned verification, groups that never chain.

The room finds which pictures show the same thing. In come signatures (1.2 kB a picture), content
keys and perceptual hashes; out go verified pairs with scores, groups, and sentences on how sure and
how complete they are. 60,000 pictures take minutes on two cores and about 4 kB each of memory.
Plain arrays in, plain arrays out: no store, no files, no printing.

    signatures     what a scan keeps of a picture: two small planes, size, border, flags
    orientations   the eight ways to lay a picture down, for everything below
    hamming        every pair of 64-bit hashes within a radius
    turned         the hashes of mirror images and quarter turns
    descriptor     a fixed dense descriptor that knows its mirror images and quarter turns
    dense          the k nearest by descriptor
    candidates     which pairs are verified: by hash and by descriptor
    align          registration and correlation of signatures, in numba (`kernels/`)
    verification   the score of a pair: log odds for "one picture"
    calibration    the threshold from random pairs of the user's own pictures
    synthetic      known changes, to measure recall with
    affine         maps between two pictures at full size
    inspection     the two files themselves, where signatures cannot decide
    rechecks       which pairs get that full-resolution check; making them on all cores
    transformation what was done to the picture, in words
    groups         groups around representatives
    completeness   what was compared and what was left out
    pair_cache     what a search decided, for the next one
    search         all of it, within a set: `find_near_duplicates`
    overlap        all of it, new images against a library: `search_against`
"""

from audit.neighbors.calibration import Calibration, calibrate, measure_recall
from audit.neighbors.completeness import Completeness
from audit.neighbors.dense import Neighbours, find_nearest, find_nearest_in
from audit.neighbors.descriptor import compare_orientations, describe
from audit.neighbors.groups import Group, Grouping, group_pictures
from audit.neighbors.hamming import CodePairs, find_code_pairs, find_cross_pairs
from audit.neighbors.inspection import FullSizeCheck, check_full_size
from audit.neighbors.overlap import LibraryMatches, search_against
from audit.neighbors.pair_cache import PairCache
from audit.neighbors.search import Relation, SearchOptions, find_near_duplicates
from audit.neighbors.signatures import (
    SIGNATURE_DTYPE,
    SIGNATURE_VERSION,
    Flag,
    Signatures,
    is_comparable,
    make_signature,
    stack_signatures,
)
from audit.neighbors.synthetic import TRANSFORMATIONS, make_duplicate
from audit.neighbors.transformation import PairTransformation, describe_pair
from audit.neighbors.turned import find_turned_pairs, hash_orientations
from audit.neighbors.verification import VerifiedPairs, key_ranks, verify

__all__ = [
    "SIGNATURE_DTYPE",
    "SIGNATURE_VERSION",
    "TRANSFORMATIONS",
    "Calibration",
    "CodePairs",
    "Completeness",
    "Flag",
    "FullSizeCheck",
    "Group",
    "Grouping",
    "LibraryMatches",
    "Neighbours",
    "PairCache",
    "PairTransformation",
    "Relation",
    "SearchOptions",
    "Signatures",
    "VerifiedPairs",
    "calibrate",
    "check_full_size",
    "compare_orientations",
    "describe",
    "describe_pair",
    "find_code_pairs",
    "find_cross_pairs",
    "find_near_duplicates",
    "find_nearest",
    "find_nearest_in",
    "find_turned_pairs",
    "group_pictures",
    "hash_orientations",
    "is_comparable",
    "key_ranks",
    "make_duplicate",
    "make_signature",
    "measure_recall",
    "search_against",
    "stack_signatures",
    "verify",
]
