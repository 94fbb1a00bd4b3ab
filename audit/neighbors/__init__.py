"""Near-duplicates: complete candidates, aligned verification, groups that never chain.

    thumbnails  what a scan keeps of a picture: thumbnails, size, border, flags (1.2 kB)
    hamming     every pair of 64-bit hashes within a radius
    descriptor  a fixed dense descriptor that knows its mirror images and quarter turns
    dense       the k nearest by descriptor
    align       registration and correlation of thumbnails, in numba
    verification the score of a pair: log odds for "one picture"
    calibration the threshold from random pairs of the user's own pictures
    inspection  the two files themselves, where thumbnails cannot decide
    looks       which pairs get that second look; taking them on all cores
    transformation what was done to the picture, in words
    groups      stars around representatives
    search      all of it, within a set: `relate`
    memory      what a search settled, for the next one
    turned      the hashes of mirror images and quarter turns
    overlap     all of it, new images against a library: `search_against`
    planted     known transformations, to measure recall with

Plain arrays in, plain arrays out: no store, no files, no printing.
"""

from audit.neighbors.calibration import Calibration, calibrate, planted_recall
from audit.neighbors.dense import Neighbours, nearest, nearest_in
from audit.neighbors.descriptor import describe, similarities
from audit.neighbors.groups import Grouping, Star, group
from audit.neighbors.hamming import CodePairs, within_radius, within_radius_of
from audit.neighbors.inspection import Look, second_look
from audit.neighbors.overlap import Overlap, search_against
from audit.neighbors.pair_cache import Memory
from audit.neighbors.search import Completeness, Options, Relation, relate
from audit.neighbors.synthetic import TRANSFORMATIONS, plant
from audit.neighbors.thumbnails import (
    SIGNATURE_DTYPE,
    SIGNATURE_VERSION,
    Flag,
    Signatures,
    comparable,
    signature,
    signatures,
)
from audit.neighbors.transformation import Transformation, describe_pair
from audit.neighbors.turned import turned_codes, within_radius_turned
from audit.neighbors.verification import Verified, key_ranks, verify

__all__ = [
    "SIGNATURE_DTYPE",
    "SIGNATURE_VERSION",
    "TRANSFORMATIONS",
    "Calibration",
    "CodePairs",
    "Completeness",
    "Flag",
    "Grouping",
    "Look",
    "Memory",
    "Neighbours",
    "Options",
    "Overlap",
    "Relation",
    "Signatures",
    "Star",
    "Transformation",
    "Verified",
    "calibrate",
    "comparable",
    "describe",
    "describe_pair",
    "group",
    "key_ranks",
    "nearest",
    "nearest_in",
    "plant",
    "planted_recall",
    "relate",
    "search_against",
    "second_look",
    "signature",
    "signatures",
    "similarities",
    "turned_codes",
    "verify",
    "within_radius",
    "within_radius_of",
    "within_radius_turned",
]
