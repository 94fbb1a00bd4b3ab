"""One small dataset in every kind of pack: pictures of noise in three classes and two splits."""

import io
import json
import pickle
import struct
import tarfile
import zipfile
from pathlib import Path

import numpy as np
import polars as pl
from PIL import Image

from audit.picture.decode import Limits
from audit.picture.reading import read_bytes
from audit.records import Sample
from audit.sources import open_source
from audit.sources.packs.tfrecords import masked_crc
from audit.sources.paths import reading_place
from tests.audit.sources.trees import read

Files = dict[str, bytes]


def content(sample: Sample, most: int = 1 << 30) -> bytes:
    return read_bytes(str(reading_place(sample.uri)), Limits(max_bytes=most))


def as_folder(folder: Path, files: Files) -> list[tuple[object, ...]]:
    """What the samples of these files are where they lie in a folder."""
    return places_of(read(open_source([str(write_folder(folder, files))])))


def places_of(samples: list[Sample]) -> list[tuple[object, ...]]:
    return [(s.id, s.split, s.label, s.n_bytes, content(s)) for s in samples]


def spoil(path: Path, at: int, value: int | None = None) -> None:
    """Change one byte of a file, or set it."""
    data = bytearray(path.read_bytes())
    data[at] = data[at] ^ 0xFF if value is None else value
    path.write_bytes(data)


def pictures(n: int = 12) -> Files:
    """Return `split/class/n.png` by path; every fourth picture is one of test."""
    made = {}
    for i in range(n):
        pixels = np.random.default_rng(i).integers(0, 256, (8, 9, 3), dtype=np.uint8)
        buffer = io.BytesIO()
        Image.fromarray(pixels).save(buffer, "PNG")
        split = "test" if i % 4 == 3 else "train"
        made[f"{split}/{['cat', 'dog', 'owl'][i % 3]}/{i:02}.png"] = buffer.getvalue()
    return dict(sorted(made.items()))


def write_folder(folder: Path, files: Files) -> Path:
    for name, data in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)
    return folder


def write_tar(path: Path, files: Files) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w") as archive:
        for name, data in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(data)
            archive.addfile(entry, io.BytesIO(data))
    return path


def write_zip(path: Path, files: Files, method: int = zipfile.ZIP_DEFLATED) -> Path:
    with zipfile.ZipFile(path, "w", method) as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    return path


def write_parquet(path: Path, files: Files, names: list[str] | None = None) -> Path:
    """Write a table of records of bytes, its classes as numbers where they have names."""
    classes = [name.split("/")[1] for name in files]
    labels: list[object] = [names.index(c) for c in classes] if names else list(classes)
    frame = pl.DataFrame(
        {
            "image": [{"bytes": data, "path": None} for data in files.values()],
            "label": labels,
            "weight": range(len(files)),
        }
    )
    if names is None:
        frame.write_parquet(path, row_group_size=5)
        return path
    import pyarrow.parquet as pq

    features = {"label": {"names": names, "_type": "ClassLabel"}}
    notes = {"huggingface": json.dumps({"info": {"features": features}})}
    pq.write_table(frame.to_arrow().replace_schema_metadata(notes), path, row_group_size=5)
    return path


def write_tfrecord(path: Path, files: Files) -> Path:
    """Write records of tf.train.Example with a picture, a class and a number."""
    with path.open("wb") as out:
        for number, (name, data) in enumerate(files.items()):
            record = example(
                {"image/encoded": data, "label": name.split("/")[1].encode(), "number": number}
            )
            head = struct.pack("<Q", len(record))
            out.write(head + struct.pack("<I", masked_crc(head)))
            out.write(record + struct.pack("<I", masked_crc(record)))
    return path


def example(features: dict[str, bytes | int]) -> bytes:
    entries = b""
    for name, value in features.items():
        if isinstance(value, bytes):
            kind = _field(1, _field(1, value))
        else:
            kind = _field(3, _field(1, _number(value)))
        entries += _field(1, _field(1, name.encode()) + _field(2, kind))
    return _field(1, entries)


def _field(number: int, content: bytes) -> bytes:
    return bytes([number << 3 | 2]) + _number(len(content)) + content


def _number(value: int) -> bytes:
    out = b""
    while value > 0x7F:
        out, value = out + bytes([value & 0x7F | 0x80]), value >> 7
    return out + bytes([value])


def pixels_of(files: Files) -> np.ndarray:
    """Return the pictures as one array (n, 8, 9, 3)."""
    return np.stack([np.array(Image.open(io.BytesIO(data))) for data in files.values()])


def write_cifar(folder: Path, n: int = 3) -> Path:
    """Write a batch of CIFAR-10 with names of classes."""
    folder.mkdir(parents=True, exist_ok=True)
    data = np.random.default_rng(0).integers(0, 256, (n, 3072), dtype=np.uint8)
    batch = {b"data": data, b"labels": [i % 2 for i in range(n)], b"filenames": [b"x.png"] * n}
    (folder / "data_batch_1").write_bytes(pickle.dumps(batch))
    (folder / "batches.meta").write_bytes(pickle.dumps({b"label_names": [b"cat", b"dog"]}))
    return folder
