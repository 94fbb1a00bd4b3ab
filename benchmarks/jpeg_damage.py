"""Does `[measure] jpeg_walk` see one changed byte in a JPEG, and is it silent on sound files?

    python benchmarks/jpeg_damage.py [DIR] [--changes N] [--small N]

One byte of the coded data of each photograph in DIR/photos is changed N times (default 4), with a
fixed seed. Counted are the changes that alter over 1 % of the pixels; apart, those that alter over
1 % of them by 8 levels or more, which is what an eye may see. "decoder" is what a strict decode
reports already (FILE002), "walk" what it and the walk report together (FILE003). The constants of
`audit/picture/jpeg_walk.py` were chosen on every second photograph; the others are held out.

Null: the photographs, eighteen re-encodings (three qualities, three subsamplings, progressive or
not) of each of them in turn, the pictures of DIR/raccoon and the first N of the CIFAR-10 archive
(default 600): a report on any of these is a false alarm. The price is in CPU ms a photograph beside
one strict full decode. The last line is JSON.
"""

from __future__ import annotations

import argparse
import io
import itertools
import json
import os
import tarfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import simplejpeg
from damage import scan_start
from PIL import Image

from audit.checks.file_hidden_damage import HiddenDamage
from audit.picture.decode import Limits, components_of, decode_picture
from audit.picture.jpeg_shift import shift_evidence
from audit.picture.jpeg_walk import count_faults, warm_up_walk

ROOT = Path(__file__).parent.parent
LEAST = HiddenDamage.Params().min_jpeg_shift
WAYS = tuple(itertools.product((30, 75, 95), (0, 1, 2), (False, True)))
VISIBLE = 8  # levels


def columns_of(data: bytes) -> dict[str, object]:
    """Return the columns of a file's bytes, walked."""
    return decode_picture(data, "a.jpg", Limits(), jpeg_walk=True)[0]


def reported(columns: dict[str, object]) -> bool:
    """Say whether FILE003 would report what the walk found."""
    faults, shift = columns.get("jpeg_faults"), columns.get("jpeg_shift")
    return bool(faults) or (isinstance(shift, float) and shift >= LEAST)


def planted(paths: list[Path], changes: int) -> Counter[str]:
    """Change single bytes and count what is seen of them."""
    counts = Counter[str]()
    for number, path in enumerate(paths):
        data = path.read_bytes()
        sound = simplejpeg.decode_jpeg(data, "RGB").astype(np.int16)
        for change in range(changes):
            rng = np.random.default_rng([number, change, len(data)])
            out = bytearray(data)
            out[int(rng.integers(scan_start(data), len(data) - 2))] ^= int(rng.integers(1, 256))
            differs = np.abs(simplejpeg.decode_jpeg(bytes(out), "RGB", strict=False) - sound).max(2)
            columns = columns_of(bytes(out))
            quiet = columns["status"] == "ok"
            for name, least in (("altered", 1), ("visible", VISIBLE)):
                if (differs >= least).mean() > 0.01:
                    counts[name] += 1
                    counts[f"{name}, decoder"] += not quiet
                    counts[f"{name}, walk"] += not quiet or reported(columns)
    return counts


def sound_files(photos: list[Path], data: Path, small: int) -> Iterator[tuple[str, bytes]]:
    """Yield sound JPEG files by name."""
    for number, path in enumerate(photos):
        yield path.name, path.read_bytes()
        for quality, chroma, progressive in WAYS[number % 6 :: 6]:
            file = io.BytesIO()
            Image.open(path).convert("RGB").save(
                file, "JPEG", quality=quality, subsampling=chroma, progressive=progressive
            )
            yield f"{path.name} {quality} {chroma} {progressive}", file.getvalue()
    for path in sorted((data / "raccoon").rglob("*.jp*g")):
        yield path.name, path.read_bytes()
    with tarfile.open(data / "cifar10-mini.tar") as archive:
        members = (m for m in archive if m.isfile() and m.name.endswith((".jpg", ".jpeg")))
        for member in itertools.islice(members, small):
            opened = archive.extractfile(member)
            assert opened is not None
            yield member.name, opened.read()


def price(paths: list[Path]) -> dict[str, float]:
    """Return CPU ms a photograph of a strict decode and of both parts of the walk."""
    spent = dict.fromkeys(("decode", "codes", "step"), 0.0)
    for path in paths:
        data = path.read_bytes()
        kind = components_of(Image.open(path))
        at = time.process_time()
        for _ in range(5):
            stored = simplejpeg.decode_jpeg(data, "RGB", strict=True)
        spent["decode"], at = spent["decode"] + time.process_time() - at, time.process_time()
        for _ in range(5):
            count_faults(data)
        spent["codes"], at = spent["codes"] + time.process_time() - at, time.process_time()
        for _ in range(5):
            shift_evidence(stored, *kind)
        spent["step"] += time.process_time() - at
    return {name: 1000 * s / 5 / len(paths) for name, s in spent.items()}


def main() -> None:
    """Print the three tables."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    real = os.environ.get("PREFLIGHT_REAL_DATA", ROOT.parent / "shared" / "data")
    parser.add_argument("data", nargs="?", type=Path, default=Path(real))
    parser.add_argument("--changes", type=int, default=4)
    parser.add_argument("--small", type=int, default=600)
    asked = parser.parse_args()
    photos = sorted(p for p in (asked.data / "photos").iterdir() if Image.open(p).mode == "RGB")
    warm_up_walk()
    result: dict[str, object] = {}
    for name, half in (("chosen on", photos[::2]), ("held out", photos[1::2])):
        counts = planted(half, asked.changes)
        result[name] = dict(counts)
        for kind in ("altered", "visible"):
            n = counts[kind]
            decoder, walk = counts[f"{kind}, decoder"] / n, counts[f"{kind}, walk"] / n
            print(f"{name}: {n} {kind}: decoder {decoder:.0%}, with the walk {walk:.0%}")
    n, alarms = 0, []
    for file, data in sound_files(photos, asked.data, asked.small):
        columns = columns_of(data)
        if columns["status"] == "ok":
            n += 1
            alarms += [(file, columns["jpeg_faults"], columns["jpeg_shift"])] * reported(columns)
    print(f"sound: {n:,} files, {len(alarms)} reported: {alarms}")
    spent = price(photos[::4])
    times = ", ".join(f"{name} {ms:.2f} ms" for name, ms in spent.items())
    ratio = (spent["codes"] + spent["step"]) / spent["decode"]
    print(f"CPU a photograph: {times}; the walk takes {ratio:.2f} of a decode")
    result |= {"sound": n, "alarms": len(alarms), "ms": spent, "ratio": ratio}
    print(json.dumps(result))


if __name__ == "__main__":
    main()
