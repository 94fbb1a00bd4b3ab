"""One small dataset in every kind of pack: pictures of noise in three classes and two splits."""

from __future__ import annotations

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
    """Write the files as they are."""
    for name, data in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)
    return folder


def write_tar(path: Path, files: Files) -> Path:
    """Write a tar archive."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w") as archive:
        for name, data in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(data)
            archive.addfile(entry, io.BytesIO(data))
    return path


def write_zip(path: Path, files: Files, method: int = zipfile.ZIP_DEFLATED) -> Path:
    """Write a zip archive."""
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


def write_lmdb(path: Path, values: dict[str, bytes], page: int = 4096) -> Path:
    """Write a database of LMDB: leaves with the keys, pages of their own for what is long."""
    path.parent.mkdir(parents=True, exist_ok=True)
    pages: dict[int, bytes] = {}
    nodes: list[tuple[bytes, bytes]] = []  # key, node

    def add_page(flags: int, body: bytes, taken: int = 1) -> int:
        number = 2 + len(pages)
        whole = struct.pack("<QHHI", number, 0, flags, taken) + body
        whole = whole.ljust(taken * page, b"\0")
        for i in range(taken):
            pages[number + i] = whole[i * page : (i + 1) * page]
        return number

    def add_tree_page(flags: int, inside: list[bytes]) -> int:
        lower, at, body = 16 + 2 * len(inside), page, bytearray(page - 16)
        for i, node in enumerate(inside):
            at -= len(node) + len(node) % 2
            struct.pack_into("<H", body, 2 * i, at)
            body[at - 16 : at - 16 + len(node)] = node
        number = add_page(flags, bytes(body))
        pages[number] = struct.pack("<QHHHH", number, 0, flags, lower, at) + pages[number][16:]
        return number

    for name, value in sorted((name.encode(), value) for name, value in values.items()):
        kind, data = 0, value
        if len(value) > page // 4:
            kind, data = 1, struct.pack("<Q", add_page(4, value, -(-(len(value) + 16) // page)))
        head = struct.pack("<HHHH", len(value) & 0xFFFF, len(value) >> 16, kind, len(name))
        nodes.append((name, head + name + data))

    def add_level(flags: int, nodes: list[tuple[bytes, bytes]]) -> list[tuple[bytes, int]]:
        level: list[tuple[bytes, int]] = []
        room: list[bytes] = []
        first = b""
        for key, node in nodes:
            if room and sum(len(n) + 4 for n in [*room, node]) > page - 16:
                level.append((first, add_tree_page(flags, room)))
                room = []
            first = key if not room else first
            room.append(node)
        return [*level, (first, add_tree_page(flags, room))]

    level, depth = add_level(2, nodes), 1
    while len(level) > 1:
        inside = [
            (key, struct.pack("<HHHH", n & 0xFFFF, n >> 16 & 0xFFFF, n >> 32, len(key)) + key)
            for key, n in level
        ]
        level, depth = add_level(1, inside), depth + 1
    root = level[0][1]
    tree = struct.pack("<IHH5Q", 0, 0, depth, 0, 0, 0, len(nodes), root)
    free = struct.pack("<IHH5Q", page, 8, 0, 0, 0, 0, 0, (1 << 64) - 1)
    metas = []
    for number in (0, 1):
        body = struct.pack("<IIQQ", 0xBEEFC0DE, 1, 0, 1 << 30) + free + tree
        body += struct.pack("<QQ", 1 + len(pages), number)
        metas.append((struct.pack("<QHHI", number, 0, 8, 0) + body).ljust(page, b"\0"))
    path.write_bytes(b"".join([*metas, *(pages[n] for n in sorted(pages))]))
    return path


def example(features: dict[str, bytes | int]) -> bytes:
    """Return a tf.train.Example, as a protocol buffer."""
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


def write_idx(folder: Path, n: int = 4) -> Path:
    """Write pictures and labels as MNIST does."""
    folder.mkdir(parents=True, exist_ok=True)
    data = np.random.default_rng(0).integers(0, 256, (n, 5, 6), dtype=np.uint8)
    head = struct.pack(">4I", 0x803, n, 5, 6)
    (folder / "t10k-images-idx3-ubyte").write_bytes(head + data.tobytes())
    labels = bytes(i % 3 for i in range(n))
    (folder / "t10k-labels-idx1-ubyte").write_bytes(struct.pack(">2I", 0x801, n) + labels)
    return folder
