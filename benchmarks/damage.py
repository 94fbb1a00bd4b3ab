"""What kinds of damage does a scan catch, by which check, and what do other decoders see?

    python benchmarks/damage.py kinds [DIR]

`kinds`: every photograph in DIR/photos is damaged in each of the ways below, once, with a fixed
seed; one scan judges all of them and the sound originals. A row: the share of files caught by
FILE001 to FILE005, the checks that did, and the share on which Pillow's open() + load() raises.
"changed" is the share whose decoded pixels differ at all from the original's: damage that changes
nothing need not be caught.
"""

from __future__ import annotations

import io
import tempfile
import warnings
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import numpy as np
import typer
from bench import Document, hall, measures, photographs, real_data, told
from PIL import Image

from audit.picture.decode import Limits, decode_picture
from audit.run.run_version import open_run
from audit.scanning import scanning
from audit.sources import open_source

Folder = Annotated[Path | None, typer.Argument(metavar="DIR")]
# Integrity alone: FILE006 and FILE007 speak of sound files too.
JUDGES = [f"FILE00{number}" for number in range(1, 6)]
Damage = Callable[[bytes, np.random.Generator], bytes]
app = hall(__doc__)


def scan_start(data: bytes) -> int:
    """Return where the entropy-coded data begins."""
    at = data.rindex(b"\xff\xda")
    return at + 2 + int.from_bytes(data[at + 2 : at + 4], "big")


def cut(share: float) -> Damage:
    """Keep the first `share` of the file."""
    return lambda data, _: data[: int(len(data) * share)]


def changed(count: int) -> Damage:

    def damage(data: bytes, rng: np.random.Generator) -> bytes:
        out = bytearray(data)
        for at in rng.choice(np.arange(scan_start(data), len(data) - 2), count, replace=False):
            out[at] ^= int(rng.integers(1, 256))
        return bytes(out)

    return damage


def block(fill: str) -> Damage:
    """Zero, drop or randomise 4 KiB in the middle of the scan."""

    def damage(data: bytes, rng: np.random.Generator) -> bytes:
        start = scan_start(data)
        at = int(rng.integers(start, max(start + 1, len(data) - 4200)))
        filling = {"zeros": bytes(4096), "missing": b"", "random": rng.bytes(4096)}[fill]
        return data[:at] + filling + data[at + 4096 :]

    return damage


def saved_again(data: bytes, _: np.random.Generator) -> bytes:
    """Cut at 70 %, decode tolerantly, save: the damage is now a sound file."""
    picture = decode_picture(data[: len(data) * 7 // 10], "a.jpg", Limits())[1]
    assert picture is not None
    file = io.BytesIO()
    Image.fromarray(picture.rgb).save(file, "JPEG", quality=90)
    return file.getvalue()


def as_png(data: bytes, _: np.random.Generator) -> bytes:
    file = io.BytesIO()
    Image.open(io.BytesIO(data)).convert("RGB").save(file, "PNG")
    return file.getvalue()


KINDS: dict[str, Damage] = {
    "sound": lambda data, _: data,
    "cut at 99.9 %": cut(0.999),
    "cut at 99 %": cut(0.99),
    "cut at 90 %": cut(0.9),
    "cut at 50 %": cut(0.5),
    "4 KiB zeroed": block("zeros"),
    "4 KiB missing": block("missing"),
    "4 KiB random": block("random"),
    "1 byte changed": changed(1),
    "16 bytes changed": changed(16),
    "256 bytes changed": changed(256),
    "EOI missing": lambda data, _: data[:-2],
    "trailing garbage": lambda data, rng: data + rng.bytes(500),
    "saved again after a cut": saved_again,
    "PNG named .jpg": as_png,
    "empty": lambda _data, _rng: b"",
    "HTML named .jpg": lambda _data, _rng: b"<!DOCTYPE html><html><body>404</body></html>",
    "second half zeros": lambda data, _: data[: len(data) // 2] + bytes(len(data) - len(data) // 2),
}


def pillow_raises(data: bytes) -> bool:
    try:
        with warnings.catch_warnings(action="ignore"):
            Image.open(io.BytesIO(data)).load()
    except Exception:  # noqa: BLE001 - any error counts
        return True
    return False


def shows_change(data: bytes, sound: bytes) -> bool:
    """Say whether the decoded pixels differ from those of the sound file."""
    hashes = [decode_picture(d, "a.jpg", Limits())[0].get("pixel_hash") for d in (data, sound)]
    return hashes[0] != hashes[1]


@measures(app)
def kinds(data: Folder = None) -> Document:
    """Which of the kinds of damage are caught, and by what?"""
    originals = photographs(real_data(data, "photos"))
    with tempfile.TemporaryDirectory() as work:
        root, seen, pixels = Path(work) / "damaged", Counter[str](), Counter[str]()
        for kind, damage in KINDS.items():
            folder = root / kind.replace(" ", "_").replace("/", "")
            folder.mkdir(parents=True)
            for number, path in enumerate(originals):
                sound = path.read_bytes()
                data = damage(sound, np.random.default_rng([number, len(kind)]))
                (folder / f"{path.stem}.jpg").write_bytes(data)
                seen[kind] += pillow_raises(data)
                pixels[kind] += shows_change(data, sound)
        run = Path(work) / "run"
        scanning.scan(open_source([str(root)], layout="class/file"), run, checks=JUDGES)
        with open_run(run) as store:
            rows = store.rows(
                "SELECT s.label, f.code, count(DISTINCT s.id) AS n FROM findings f "
                "JOIN finding_samples m USING (fingerprint) JOIN samples s ON s.id = m.sample_id "
                "GROUP BY ALL ORDER BY 1, 2"
            )
            anyhow = store.rows(
                "SELECT s.label, count(DISTINCT s.id) AS n FROM finding_samples m "
                "JOIN samples s ON s.id = m.sample_id GROUP BY 1"
            )
    caught = {row["label"]: row["n"] for row in anyhow}
    total, result = len(originals), {}
    for kind in KINDS:
        label = kind.replace(" ", "_").replace("/", "")
        codes = {r["code"]: round(100 * r["n"] / total) for r in rows if r["label"] == label}
        shares = [100 * n / total for n in (pixels[kind], seen[kind], caught.get(label, 0))]
        result[kind] = {"changed": shares[0], "pillow": shares[1], "caught": shares[2], "by": codes}
        print(told({"kind": kind, **result[kind]}))
    return result


if __name__ == "__main__":
    app()
