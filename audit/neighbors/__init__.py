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

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
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
else:
    # Names are imported when they are first asked for: all of them need numba, OpenCV and SciPy,
    # which take a second to import, and most callers want the version of a signature alone.
    _HOMES = {
        "calibration": "Calibration calibrate planted_recall",
        "dense": "Neighbours nearest nearest_in",
        "descriptor": "describe similarities",
        "groups": "Grouping Star group",
        "hamming": "CodePairs within_radius within_radius_of",
        "inspection": "Look second_look",
        "overlap": "Overlap search_against",
        "pair_cache": "Memory",
        "search": "Completeness Options Relation relate",
        "synthetic": "TRANSFORMATIONS plant",
        "thumbnails": "SIGNATURE_DTYPE SIGNATURE_VERSION Flag Signatures comparable signature "
        "signatures",
        "transformation": "Transformation describe_pair",
        "turned": "turned_codes within_radius_turned",
        "verification": "Verified key_ranks verify",
    }
    _MODULE_OF = {name: home for home, names in _HOMES.items() for name in names.split()}

    def __getattr__(name: str) -> object:
        """Import a public name from its module and keep it."""
        if name not in _MODULE_OF:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from importlib import import_module

        globals()[name] = getattr(import_module(f"{__name__}.{_MODULE_OF[name]}"), name)
        return globals()[name]


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
