"""Hostile inputs through every reader of `audit`: a result or one sentence must come out.

    python benchmarks/fuzz_inputs.py --minutes 10 --seed 1 [--kind manifest]

Manifests, folder trees, settings, ledgers of decisions and runs are made from seeds
(`tests/audit/hostile_inputs.py` has the rule and the generators) and read in a process of its own,
so that a library that crashes or hangs costs that case only. What breaks the rule is printed with
its kind and seed, which make the same case again, and counted by place in the JSON line at the end.

    python benchmarks/fuzz_inputs.py --grow 300 [--kind "yolo in one place"]

Files that are made of one thing N times, then 10 N times, are read by the command that is for them
(`READERS`; the others are scanned with a picture), in forks of a warm process; a kind breaks that
takes more than `MOST_GROWTH` times the CPU seconds, counted from `FLOOR_S` on: what a command takes
whatever it reads.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import random
import select
import struct
import subprocess
import sys
import tempfile
import time
import warnings
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))
PATIENCE_S = 150  # s without a line: Python cannot interrupt a library that hangs


# ---- the process that reads ----


def work(kinds: list[str], first: int, folder: Path) -> None:
    """Read case after case for ever, with a line of JSON before and after each."""
    from tests.audit.hostile_inputs import Broken, answer, make_case, make_place

    warnings.simplefilter("error")  # a library that warns writes to the terminal
    place = make_place(folder)
    os.chdir(folder)
    seed = first
    while True:
        kind = kinds[seed % len(kinds)]
        _say(kind=kind, seed=seed)
        codes, broken = [], ""
        try:
            codes = [answer(call) for call in make_case(kind, seed, place)]
        except Broken as error:
            broken = str(error)
        _say(kind=kind, seed=seed, codes=codes, broken=broken, at=round(time.monotonic(), 1))
        seed += 1


def _say(**facts: Any) -> None:
    sys.stdout.write(json.dumps(facts) + "\n")
    sys.stdout.flush()


# ---- the process that counts ----


def fuzz(minutes: float, first: int, kinds: list[str]) -> dict[str, Any]:
    """Read cases until the time is over; `broken` has a case for each kind and place."""
    end, counts, broken = time.monotonic() + 60 * minutes, Counter[str](), dict[str, str]()
    seed = first
    while time.monotonic() < end:
        for facts in _lines(kinds, seed, end):
            seed = max(seed, facts["seed"] + 1)
            kind = facts["kind"]
            counts[f"{kind} cases"] += 1
            counts.update(f"{kind} code {code}" for code in facts["codes"])
            if facts["broken"]:
                counts[f"{kind} broken"] += 1
                where = f"{kind} {facts['broken'][:70]}"
                if where not in broken:
                    broken[where] = f"seed {facts['seed']}: {facts['broken']}"
                    print(f"{kind} {broken[where]}", flush=True)
    return {"seeds": [first, seed - 1], **dict(sorted(counts.items())), "broken": broken}


def _lines(kinds: list[str], first: int, end: float) -> Iterator[dict[str, Any]]:
    """Yield a finished case a time; one that the worker did not survive is broken too."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        words = [sys.executable, __file__, "--work", folder, "--seed", str(first)]
        worker = subprocess.Popen(
            [*words, *(f"--kind={kind}" for kind in kinds)], stdout=subprocess.PIPE
        )
        assert worker.stdout is not None
        begun: dict[str, Any] = {}
        try:
            while time.monotonic() < end:
                ready = select.select([worker.stdout], [], [], PATIENCE_S)[0]
                line = worker.stdout.readline() if ready else b""
                if not line:
                    state = f"it ended with {worker.wait()}" if ready else "it hung"
                    yield begun | {"codes": [], "broken": f"the process did not survive: {state}"}
                    return
                facts = json.loads(line)
                if "codes" in facts:
                    yield facts
                else:
                    begun = facts
        finally:
            worker.kill()
            worker.wait()


# ---- one thing, many times ----

MOST_GROWTH, FLOOR_S = 12.0, 1.5
Files = dict[str, str | bytes]
SIDE = 480
OBJECT = (
    "<object><name>cat</name><bndbox><xmin>1</xmin><ymin>1</ymin><xmax>9</xmax><ymax>9</ymax>"
    "</bndbox></object>"
)
BOX = {"image_id": 1, "category_id": 1, "bbox": [10, 10, 20, 20], "area": 400, "iscrowd": 0}
CAT = {"id": 1, "name": "cat"}
IMAGE = {"id": 1, "file_name": "p.png"}


def coco(boxes: list[Any], classes: list[Any] | None = None, images: int = 1) -> Files:
    document = {"images": [IMAGE] * images, "annotations": boxes, "categories": classes or [CAT]}
    return {"annotations.json": json.dumps(document)}


def yolo(lines: Sequence[str], settings: str = "") -> Files:
    files: Files = {"labels/p.txt": "".join(f"{line}\n" for line in lines)}
    return files | ({"data.yaml": settings} if settings else {})


def voc(body: str) -> Files:
    return {"Annotations/p.xml": f"<annotation><filename>p.png</filename>{body}</annotation>"}


def labelme(shapes: list[Any]) -> Files:
    return {"images/p.json": json.dumps({"imagePath": "p.png", "shapes": shapes})}


def numbers(n: int, most: float) -> list[float]:
    rng = random.Random(n)
    return [round(most * rng.random(), 4) for _ in range(n)]


def table(rows: Sequence[str], head: str, name: str = "list.csv") -> Files:
    return {name: "".join(f"{row}\n" for row in (head, *rows))}


def listed(n: int) -> Files:
    return table([f"{k},p{k}.png,c{k % 3}" for k in range(n)], "id,path,label")


def answered(n: int, classes: int) -> Files:
    rows = [f"{k},p{k}.png,c{k % classes}" for k in range(n)]
    answers = table([f"{k},c{k % classes}" for k in range(n)], "id,prediction", "answers.csv")
    return table(rows, "id,path,label") | answers


def jsonl(rows: Sequence[dict[str, Any]]) -> Files:
    return {"list.jsonl": "".join(json.dumps(row) + "\n" for row in rows)}


def parquet(rows: int, columns: int) -> Files:
    import polars as pl

    buffer = io.BytesIO()
    more = {f"x{k}": [k] * rows for k in range(columns)}
    names = [f"p{k}.png" for k in range(rows)]
    pl.DataFrame({"id": names, "label": ["a", "b"] * (rows // 2), **more}).write_parquet(buffer)
    return {"list.parquet": buffer.getvalue()}


def chosen(rows: list[Any]) -> Files:
    head = {"schema": "audit-plan/1", "run": "/r", "generation": "g", "decisions": "0/0",
            "roots": {}, "layout": "keep", "left_out": []}  # fmt: skip
    return {"plan.json": json.dumps(head | {"files": rows})}


def planned_file(k: int, folder: str = "") -> dict[str, Any]:
    return {"source": f"/none/{k}.png", "target": f"{folder}{k}.png", "content_hash": "0" * 64,
            "n_bytes": 1, "mtime_ns": 1, "id": f"{k}.png"}  # fmt: skip


def receipt(n: int) -> Files:
    head = {"schema": "audit-receipt/1", "plan": "x", "how": "copy", "made_folder": False}
    lines = [head, *({"begin": {f"a{k % 7}/{k}.png": "0" * 64}} for k in range(n))]
    return {".preflight/receipt.jsonl": "".join(json.dumps(one) + "\n" for one in lines)}


def session(runs: int) -> Files:
    one = {"arm": "W", "config": {"batch_size": 4}, "totals": {"steps": 30, "elapsed_ns": 10**10}}
    return listed(100) | {"session.json": json.dumps({"schema": "profile/1", "runs": [one] * runs})}


def saved(form: str, **options: Any) -> bytes:
    from PIL import Image

    buffer = io.BytesIO()
    Image.linear_gradient("L").resize((64, 64)).save(buffer, form, **options)
    return buffer.getvalue()


def chunk(name: bytes, data: bytes) -> bytes:
    checked = name + data
    return struct.pack(">I", len(data)) + checked + struct.pack(">I", zlib.crc32(checked))


def png(more: bytes) -> Files:
    data = saved("PNG")
    return {"images/q.png": data[:33] + more + data[33:]}


def jpeg(segment: bytes, n: int) -> Files:
    data = saved("JPEG")
    return {"images/q.jpg": data[:2] + segment * n + data[2:]}


def exif(n: int) -> Files:
    """Return a JPEG whose EXIF block has n entries, or as many as fit in some segments."""
    n = min(n, 5000)
    entries = b"".join(struct.pack("<HHII", 0x9C9B + k % 20000, 4, 1, k) for k in range(n))
    block = b"Exif\0\0II*\0" + struct.pack("<IH", 8, n) + entries + bytes(4)
    return jpeg(b"\xff\xe1" + struct.pack(">H", len(block) + 2) + block, 1)


def xmp(n: int) -> Files:
    body = "".join(f"<dc:t{k}>x</dc:t{k}>" for k in range(n))
    text = f"<x:xmpmeta xmlns:x='adobe:ns:meta/'><dc:a xmlns:dc='d'>{body}</dc:a></x:xmpmeta>"
    return png(chunk(b"iTXt", b"XML:com.adobe.xmp\0\0\0\0\0" + text.encode()))


def icc(n: int) -> Files:
    from PIL import ImageCms

    profile = bytearray(ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes())
    tags = b"".join(struct.pack(">4sII", f"{k:04x}".encode(), 128, 4) for k in range(n))
    profile[128:] = struct.pack(">I", n) + tags
    profile[:4] = struct.pack(">I", len(profile))
    return png(chunk(b"iCCP", b"x\0\0" + zlib.compress(bytes(profile))))


def tiff(pages: int) -> Files:
    values = ((256, 8), (257, 8), (258, 8), (259, 1), (262, 1), (273, 8), (277, 1), (278, 8),
              (279, 64))  # fmt: skip
    tags = b"".join(struct.pack("<HHII", tag, 4, 1, value) for tag, value in values)
    one, start = struct.pack("<H", len(values)) + tags, 72
    data = bytearray(b"II*\0" + struct.pack("<I", start) + bytes(range(64)))
    for k in range(1, pages + 1):
        after = start + k * (len(one) + 4) if k < pages else 0
        data += one + struct.pack("<I", after)
    return {"images/q.tif": bytes(data)}


def gif(frames: int) -> Files:
    frame = b"\x21\xf9\x04\0\0\0\0\0\x2c" + struct.pack("<HHHH", 0, 0, 1, 1)
    frame += b"\0\x02\x02\x44\x01\0"
    head = b"GIF89a" + struct.pack("<HHBBB", 64, 64, 0x80, 0, 0) + b"\0\0\0\xff\xff\xff"
    return {"images/q.gif": head + frame * frames + b";"}


def webp(frames: int) -> Files:
    def riff(name: bytes, data: bytes) -> bytes:
        return name + struct.pack("<I", len(data)) + data + b"\0" * (len(data) % 2)

    still, wide = saved("WEBP")[12:], struct.pack("<I", 63)[:3]
    one = riff(b"ANMF", bytes(6) + wide + wide + b"\x0a\0\0\0" + still)
    body = b"WEBP" + riff(b"VP8X", b"\x02\0\0\0" + wide + wide) + riff(b"ANIM", bytes(6))
    return {"images/q.webp": riff(b"RIFF", body + one * frames)}


GROWN: dict[str, Callable[[int], Files]] = {
    "yolo in one place": lambda n: yolo(["0 .5 .5 .2 .2"] * n),
    "yolo in one place, two classes": lambda n: yolo(["0 .5 .5 .2 .2", "1 .5 .5 .2 .2"] * (n // 2)),
    "yolo one in another": lambda n: yolo([f"0 .5 .5 {k / n} {k / n}" for k in range(1, n)]),
    "yolo side by side": lambda n: yolo([f"0 {k / n} .5 {0.9 / n} .9" for k in range(n)]),
    "yolo classes": lambda n: yolo(
        [f"{k} .5 .5 .2 .2" for k in range(n)], f"names: [{', '.join(f'c{k}' for k in range(n))}]\n"
    ),
    "yolo names by number": lambda n: yolo(
        ["0 .5 .5 .2 .2"], "names:\n" + "".join(f"  {k}: c{k}\n" for k in range(n))
    ),
    "yolo outline": lambda n: yolo(["0 " + " ".join(map(str, numbers(2 * n, 1)))]),
    "yolo keypoints": lambda n: yolo(
        ["0 .5 .5 .2 .2" + " .5 .5 2" * n] * 3, f"kpt_shape: [{n}, 3]\n"
    ),
    "yolo no numbers": lambda n: yolo(["x y"] * n),
    "coco in one place": lambda n: coco([{**BOX, "id": k} for k in range(n)]),
    "coco equal ids": lambda n: coco(
        [{**BOX, "id": 1, "bbox": [k % 600, 1, 1, 1]} for k in range(n)]
    ),
    "coco equal images": lambda n: coco([{**BOX, "id": 1}], images=n),
    "coco equal classes": lambda n: coco([{**BOX, "id": 1}], [CAT] * n),
    "coco rings": lambda n: coco([{**BOX, "id": 1, "segmentation": [[1, 1, 5, 1, 5, 5]] * n}]),
    "coco long ring": lambda n: coco([{**BOX, "id": 1, "segmentation": [numbers(2 * n, 480)]}]),
    "coco run lengths": lambda n: coco(
        [{**BOX, "id": 1, "segmentation": {"size": [SIDE, SIDE], "counts": [1] * n}}]
    ),
    "coco keypoints": lambda n: coco(
        [{**BOX, "id": 1, "keypoints": [1, 1, 2] * n, "num_keypoints": n}],
        [{**CAT, "keypoints": [f"left_{k}" for k in range(n)]}],
    ),
    "coco keys": lambda n: coco([{**BOX, "id": 1, **{f"k{k}": k for k in range(n)}}]),
    "voc objects": lambda n: voc(OBJECT * n),
    "voc boxes of an object": lambda n: voc(
        "<object><name>a</name>" + "<bndbox><xmin>1</xmin></bndbox>" * n + "</object>"
    ),
    "voc text": lambda n: voc(f"<object><name>{'a &amp; b ' * n}</name></object>"),
    "voc elements": lambda n: voc("<x/>" * n),
    "labelme shapes": lambda n: labelme(
        [{"label": f"a{k}", "points": [[1, 1], [k % 99, 1], [5, 5]]} for k in range(n)]
    ),
    "labelme points": lambda n: labelme(
        [{"label": "a", "points": [[x, x % 7] for x in numbers(n, 99)]}]
    ),
    "list scanned": lambda n: listed(n // 10),
    "list csv rows": listed,
    "list csv columns": lambda n: table(
        ["1,a" + ",x" * n], "id,label," + ",".join(f"x{k}" for k in range(n))
    ),
    "list csv quotes": lambda n: table(
        [f'1,"{chr(10) * n}"', f'2,"{chr(34) * 2 * n}"'], "id,label"
    ),
    "list tsv rows": lambda n: table(
        [f"{k}\tp{k}.png\ta" for k in range(n)], "id\tpath\tlabel", "list.tsv"
    ),
    "list jsonl rows": lambda n: jsonl([{"id": k, "label": "a"} for k in range(n)]),
    "list jsonl keys": lambda n: jsonl([{"id": 1, "label": "a", **{f"k{k}": k for k in range(n)}}]),
    "list parquet rows": lambda n: parquet(n, 1),
    "list parquet columns": lambda n: parquet(2, n),
    "list of classes": lambda n: table([f"{k},c{k}" for k in range(n)], "id,label"),
    "predictions rows": lambda n: answered(n, 3),
    "predictions classes": lambda n: answered(n, n // 2),
    "settings": lambda n: {"audit.toml": "[IMG001]\n" + "".join(f"k{k} = 1\n" for k in range(n))},
    "settings exclude": lambda n: {
        "audit.toml": f"[scan]\nexclude = {[f'{k}/*' for k in range(n)]}"
    },
    "plan files": lambda n: chosen([planned_file(k) for k in range(n)]),
    "plan equal files": lambda n: chosen([planned_file(1)] * n),
    "plan folders": lambda n: chosen([planned_file(k, f"a{k}/") for k in range(n)]),
    "plan deep folders": lambda n: chosen([planned_file(k, f"{k}/" * 20) for k in range(n)]),
    "receipt lines": receipt,
    "session runs": session,
    "png texts": lambda n: png(chunk(b"tEXt", b"a\0b") * n),
    "png data chunks": lambda n: png(chunk(b"IDAT", b"") * n),
    "jpeg comments": lambda n: jpeg(b"\xff\xfe\0\x04ab", n),
    "jpeg exif blocks": lambda n: jpeg(b"\xff\xe1\0\x16Exif\0\0II*\0\x08\0\0\0\0\0" + bytes(4), n),
    "jpeg icc blocks": lambda n: jpeg(b"\xff\xe2\0\x14ICC_PROFILE\0\x01\xffabcd", n),
    "exif entries": exif,
    "xmp elements": xmp,
    "icc tags": icc,
    "tiff pages": tiff,
    "gif frames": gif,
    "webp frames": webp,
}
SCAN = "scan set --out run --fail-on never --jobs 1"
READERS = {
    "list scanned": "scan set/list.csv --out run --fail-on never --jobs 1",
    "list tsv": "subset plan --from set/list.tsv --half-width .3",
    "list jsonl": "subset plan --from set/list.jsonl --half-width .3",
    "list parquet": "subset plan --from set/list.parquet --half-width .3",
    "list": "subset plan --from set/list.csv --half-width .3",
    "predictions": "subset score --from set/list.csv --predictions set/answers.csv",
    "settings": f"{SCAN} --config set/audit.toml",
    "plan": "apply set/plan.json --to new --dry-run",
    "receipt": "apply --rollback set",
    "session": "subset plan --from set/list.csv --seconds 5 --throughput set/session.json",
}
"""Commands by the beginning of a kind's name; the first that fits."""
RUN = """
from tests.warm import _run
code = _run(["audit", *sys.argv[1:]])
"""
PICTURES = ("png", "jpeg", "exif", "xmp", "icc", "tiff", "gif", "webp")
MEASURE = """
from pathlib import Path
from audit.picture.decode import Limits
from audit.picture.measure import FileJob, Measurer
jobs = [FileJob(path.name, path.name, str(path)) for path in Path("set/images").iterdir()]
code = len(Measurer(Limits())(jobs).features) - len(jobs)
"""  # what a scan does in processes whose CPU seconds nobody adds up
SPENT = """
used = map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
print(code, sum(one.ru_utime + one.ru_stime for one in used), file=sys.stderr)
"""


def grow(n: int, kinds: list[str]) -> dict[str, Any]:
    """Read n and 10 n of each kind; `broken` has those that took too many times as long."""
    broken: dict[str, list[float]] = {}
    seconds_of("yolo no numbers", 10)  # what is loaded once
    for kind in kinds:
        spent = [seconds_of(kind, times) for times in (n, 10 * n)]
        print(f"{kind:32} {spent[0]:8.2f} s {spent[1]:8.2f} s", flush=True)
        if spent[1] > MOST_GROWTH * max(spent[0], FLOOR_S):
            broken[kind] = spent
    return {"n": n, "kinds": len(kinds), "broken": broken}


def seconds_of(kind: str, n: int) -> float:
    """Return the CPU seconds of the command that reads n of a kind, its processes included."""
    from PIL import Image

    from tests.warm import warm_line

    call = MEASURE if kind.startswith(PICTURES) else RUN
    line = next((READERS[start] for start in READERS if kind.startswith(start)), SCAN)
    with tempfile.TemporaryDirectory() as folder:
        for name, content in {"images/p.png": "", **GROWN[kind](n)}.items():
            path = Path(folder, "set", name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content if isinstance(content, bytes) else content.encode())
        Image.radial_gradient("L").resize((SIDE, SIDE)).save(Path(folder, "set", "images/p.png"))
        done = subprocess.run(
            [*warm_line("python"), f"import resource, sys\n{call}{SPENT}", *line.split()],
            check=False, capture_output=True,
            cwd=folder, env={**os.environ, "PYTHONPATH": str(ROOT)},
        )  # fmt: skip
    said = done.stderr.decode("utf-8", "replace").splitlines()
    code, spent = said[-1].split()
    if int(code) not in (0, 1, 2):
        raise SystemExit("\n".join(said))
    return float(spent)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--kind", action="append", help="one kind only; repeatable")
    parser.add_argument("--grow", type=int, metavar="N", help="N and 10 N of each thing of GROWN")
    parser.add_argument("--work", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    kinds = args.kind or ["manifest"] * 4 + ["layout"] * 4 + ["config"] * 4 + ["ledger", "run"]
    if args.grow:
        result = grow(args.grow, args.kind or list(GROWN))
        print(json.dumps({"benchmark": "fuzz_inputs", "grow": result}))
        sys.exit(bool(result["broken"]))
    if args.work:
        work(kinds, args.seed, args.work)
    result = fuzz(args.minutes, args.seed, kinds)
    print(json.dumps({"benchmark": "fuzz_inputs", "minutes": args.minutes, **result}))


if __name__ == "__main__":
    main()
