"""Cases of SPLIT002."""

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from typing import Any

import numpy as np

from audit.testing import Case

TEST = {"split": "test"}
NOON = datetime(2024, 5, 1, 12, 0, 0)


def _look(seed: int) -> dict[str, Any]:
    """Return what a picture of scene number `seed` looks like, unlike those of other scenes."""
    rng = np.random.default_rng(seed)
    light = float(rng.uniform(0.2, 0.8))
    return {
        "brightness": light, "brightness_p50": light, "contrast": float(rng.uniform(0.1, 0.3)),
        "saturation": float(rng.uniform(0.1, 0.7)), "red": float(rng.uniform(0.2, 0.8)),
        "phash256": rng.bytes(32).hex(),
    }  # fmt: skip


def _shots(*seconds: float, scene: int | None = None) -> list[dict[str, Any]]:
    """Return photographs of one camera, in train and test by turns."""
    return [
        {
            "exif_camera": "Canon EOS 1",
            "exif_time": NOON + timedelta(seconds=second),
            "split": ("train", "test")[number % 2],
            **_look(number if scene is None else scene),
        }
        for number, second in enumerate(seconds)
    ]


def _frames(prefix: str, numbers: Sequence[int], scene: int | None = None) -> list[dict[str, Any]]:
    """Return numbered frames, of one scene or each of another, in train and test by turns."""
    return [
        {
            "id": f"{split}/cat/{prefix}{number:04d}.jpg",
            "split": split,
            **_look(100 + index if scene is None else scene),
        }
        for index, number in enumerate(numbers)
        for split in [("train", "test")[index % 2]]
    ]


def split002() -> Iterator[Case]:
    others = [{"id": f"train/cat/a{i}b.jpg", **_look(1000 + i)} for i in range(40)]
    # One camera that shoots all day: by its times alone, everything would be a burst.
    busy = [{**shot, "split": "train", **_look(2000 + i)}
            for i, shot in enumerate(_shots(*range(120, 7200, 120)), 1)]  # fmt: skip
    yield Case("groups that keep together",
         [{"group_key": "p1"}, {"group_key": "p1"}, {"group_key": "p2", **TEST}])  # fmt: skip
    yield Case("numbered like a clip, but unlike", [*others, *_frames("clip07_", range(8))])
    yield Case("a sequence in one split", [*others,
         *({"id": f"train/cat/clip07_{i}.jpg", **_look(5)} for i in range(5))])  # fmt: skip
    yield Case("frames far apart", [*others, *_frames("clip07_", [0, 500, 1000, 1500], 5)])
    yield Case("too few others to compare with", _frames("clip07_", range(8), 5))
    yield Case("copies across splits: SPLIT001",
         [*others, *({**row, "pixel_hash": "a" * 32}
                     for row in _frames("clip07_", range(8), 5))])  # fmt: skip
    yield Case("shots far apart", _shots(0, 60, 120))
    yield Case("a camera in constant use", [*busy, *_shots(0, 3)])
    yield Case("one image copied: SPLIT001",
         [{**shot, "pixel_hash": "a" * 32} for shot in _shots(0, 0)])  # fmt: skip
    yield Case("one patient in both splits",
         [{"group_key": "p1"}, {"group_key": "p1", **TEST}, {"group_key": "p2", **TEST}],
         ["group:manifest/p1"])  # fmt: skip
    yield Case("a clip in two splits", [*others, *_frames("clip07_", range(1, 7), 5)],
         ["group:sequence/clip07"])  # fmt: skip
    yield Case("tracks numbered by class", [*others, *_frames("00003_", range(1, 7), 5)],
         ["group:sequence/cat/00003"])  # fmt: skip
    yield Case("a class that is one film, scene after scene", [*others,
         *(row for i in range(12) for row in _frames("f", range(5 * i, 5 * i + 5), 50 + i))],
         ["group:sequence/cat/f"])  # fmt: skip
    yield Case("a burst of four", _shots(0, 1, 3, 12),
         ["group:burst/Canon EOS 1/2024-05-01 12:00:00"])  # fmt: skip
    yield Case("a burst of a camera in constant use", [*busy, *_shots(0, 3, 5, 8, scene=5)],
         ["group:burst/Canon EOS 1/2024-05-01 12:00:00"])  # fmt: skip
