"""What kinds of damage does a scan catch, by which check, and what do other decoders see?

    python benchmarks/damage.py kinds [DIR]
    python benchmarks/damage.py bytes [DIR] [--changes 4] [--small 600]

`kinds`: every photograph in DIR/photos is damaged in each of the ways below, once, with a fixed
seed; one scan judges all of them and the sound originals. A row: the share of files caught by
FILE001 to FILE005, the checks that did, and the share on which Pillow's open() + load() raises.
"changed" is the share whose decoded pixels differ at all from the original's: damage that changes
nothing need not be caught.

`bytes`: does `[measure] jpeg_walk` see one changed byte in a JPEG, and is it silent on sound files?
One byte of the coded data of each photograph is changed so often. Counted are the changes that
alter over 1 % of the pixels; apart, those that alter over 1 % of them by 8 levels or more, which is
what an eye may see. "decoder" is what a strict decode reports already (FILE002), "walk" what it and
the walk report together (FILE003). The constants of the walk were chosen on every second
photograph; the others are held out. Null: the photographs, eighteen re-encodings (three qualities,
three subsamplings, progressive or not) of each of them in turn, the pictures of DIR/raccoon and the
first --small of the CIFAR-10 archive: a report on any of these is a false alarm. The price is in
CPU ms a photograph beside one strict full decode.
"""

from __future__ import annotations

import io
import itertools
import tempfile
import time
import timeit
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated

import numpy as np
import simplejpeg
import typer
from bench import Document, cifar_files, hall, measures, photographs, real_data, told
from PIL import Image

from audit.checks.file_hidden_damage import HiddenDamage
from audit.picture.decode import Limits, components_of, decode_picture
from audit.picture.jpeg_walk import count_faults, shift_evidence, warm_up_walk
from audit.run.generations import open_run
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


# ---- one changed byte ----

LEAST = HiddenDamage.Params().min_jpeg_shift
WAYS = tuple(itertools.product((30, 75, 95), (0, 1, 2), (False, True)))
VISIBLE = 8  # levels


def columns_of(data: bytes) -> dict[str, object]:
    return decode_picture(data, "a.jpg", Limits(), jpeg_walk=True)[0]


def reported(columns: dict[str, object]) -> bool:
    """Say whether FILE003 would report what the walk found."""
    faults, shift = columns.get("jpeg_faults"), columns.get("jpeg_shift")
    return bool(faults) or (isinstance(shift, float) and shift >= LEAST)


def planted(paths: list[Path], changes: int) -> Counter[str]:
    """Change single bytes and count what is seen of them."""
    counts, change_byte = Counter[str](), changed(1)
    for number, path in enumerate(paths):
        data = path.read_bytes()
        sound = simplejpeg.decode_jpeg(data, "RGB").astype(np.int16)
        for change in range(changes):
            rng = np.random.default_rng([number, change, len(data)])
            out = change_byte(data, rng)
            differs = np.abs(simplejpeg.decode_jpeg(out, "RGB", strict=False) - sound).max(2)
            columns = columns_of(out)
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
    yield from itertools.islice(cifar_files(data), small)


def price(paths: list[Path]) -> dict[str, float]:
    spent = Counter[str]()
    for path in paths:
        data = path.read_bytes()
        kind = components_of(Image.open(path))
        stored = simplejpeg.decode_jpeg(data, "RGB", strict=True)
        works: dict[str, Callable[[], object]] = {
            "decode": lambda data=data: simplejpeg.decode_jpeg(data, "RGB", strict=True),
            "codes": lambda data=data: count_faults(data),
            "step": lambda stored=stored, kind=kind: shift_evidence(stored, *kind),
        }
        for name, work in works.items():
            spent[name] += timeit.timeit(work, timer=time.process_time, number=5)
    return {name: 1000 * s / 5 / len(paths) for name, s in spent.items()}


@measures(app, "bytes")
def changed_bytes(data: Folder = None, changes: int = 4, small: int = 600) -> Document:
    """Which changes of one byte does the walk see, what of sound files, and at what price?"""
    data = real_data(data, "photos")
    photos = sorted(p for p in (data / "photos").iterdir() if Image.open(p).mode == "RGB")
    warm_up_walk()
    result: Document = {}
    for name, half in (("chosen on", photos[::2]), ("held out", photos[1::2])):
        counts = planted(half, changes)
        result[name] = dict(counts) | {
            f"{kind}, {by}": counts[f"{kind}, {by}"] / counts[kind]
            for kind in ("altered", "visible") for by in ("decoder", "walk")
        }  # fmt: skip
        print(told({"half": name, **result[name]}))
    n, alarms = 0, []
    for file, content in sound_files(photos, data, small):
        columns = columns_of(content)
        if columns["status"] == "ok":
            n += 1
            alarms += [(file, columns["jpeg_faults"], columns["jpeg_shift"])] * reported(columns)
    print(f"sound: {n:,} files, {len(alarms)} reported: {alarms}")
    spent = price(photos[::4])
    ratio = (spent["codes"] + spent["step"]) / spent["decode"]
    return result | {"sound": n, "alarms": len(alarms), "ms": spent, "ratio": ratio}


if __name__ == "__main__":
    app()
