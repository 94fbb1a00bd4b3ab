"""Hostile inputs through every reader of `audit`: a result or one sentence must come out.

    python benchmarks/fuzz_inputs.py --minutes 10 --seed 1 [--kind manifest]

Manifests, folder trees, settings, ledgers of decisions and runs are made from seeds
(`tests/audit/hostile_inputs.py` has the rule and the generators) and read in a process of its own,
so that a library that crashes or hangs costs that case only. What breaks the rule is printed with
its kind and seed, which make the same case again, and counted by place in the JSON line at the end.

    python benchmarks/fuzz_inputs.py --grow 300 [--kind "yolo in one place"]

Annotation files that are made of one thing N times, then 10 N times, are scanned; a kind breaks
that takes more than `MOST_GROWTH` times the CPU seconds, counted from `FLOOR_S` on: what a scan
takes whatever it reads.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import select
import subprocess
import sys
import tempfile
import time
import warnings
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

MOST_GROWTH, FLOOR_S = 12.0, 4.0
SIDE = 480
OBJECT = (
    "<object><name>cat</name><bndbox><xmin>1</xmin><ymin>1</ymin><xmax>9</xmax><ymax>9</ymax>"
    "</bndbox></object>"
)
BOX = {"image_id": 1, "category_id": 1, "bbox": [10, 10, 20, 20], "area": 400, "iscrowd": 0}
CAT = {"id": 1, "name": "cat"}
IMAGE = {"id": 1, "file_name": "p.png"}


def coco(boxes: list[Any], classes: list[Any] | None = None, images: int = 1) -> dict[str, str]:
    document = {"images": [IMAGE] * images, "annotations": boxes, "categories": classes or [CAT]}
    return {"annotations.json": json.dumps(document)}


def yolo(lines: Sequence[str], settings: str = "") -> dict[str, str]:
    files = {"labels/p.txt": "".join(f"{line}\n" for line in lines)}
    return files | ({"data.yaml": settings} if settings else {})


def voc(body: str) -> dict[str, str]:
    return {"Annotations/p.xml": f"<annotation><filename>p.png</filename>{body}</annotation>"}


def labelme(shapes: list[Any]) -> dict[str, str]:
    return {"images/p.json": json.dumps({"imagePath": "p.png", "shapes": shapes})}


def numbers(n: int, most: float) -> list[float]:
    rng = random.Random(n)
    return [round(most * rng.random(), 4) for _ in range(n)]


GROWN: dict[str, Callable[[int], dict[str, str]]] = {
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
}


def grow(n: int, kinds: list[str]) -> dict[str, Any]:
    """Scan n and 10 n of each kind; `broken` has those that took too many times as long."""
    broken: dict[str, list[float]] = {}
    for kind in kinds:
        spent = [scan_seconds(GROWN[kind](times)) for times in (n, 10 * n)]
        print(f"{kind:32} {spent[0]:8.2f} s {spent[1]:8.2f} s", flush=True)
        if spent[1] > MOST_GROWTH * max(spent[0], FLOOR_S):
            broken[kind] = spent
    return {"n": n, "kinds": len(kinds), "broken": broken}


def scan_seconds(files: dict[str, str]) -> float:
    """Return the CPU seconds of a scan of a picture with these files, all processes."""
    from PIL import Image

    with tempfile.TemporaryDirectory() as folder:
        for name, text in {"images/p.png": "", **files}.items():
            path = Path(folder, "set", name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        Image.radial_gradient("L").resize((SIDE, SIDE)).save(Path(folder, "set", "images/p.png"))
        before = os.times()
        words = ["scan", f"{folder}/set", "--out", f"{folder}/run", "--fail-on", "never"]
        done = subprocess.run(
            [sys.executable, "-P", "-m", "audit", *words, "--jobs", "1"], check=False,
            capture_output=True, env={**os.environ, "PYTHONPATH": str(ROOT)},
        )  # fmt: skip
        after = os.times()
    if done.returncode not in (0, 2):
        raise SystemExit(done.stderr.decode("utf-8", "replace"))
    used = after.children_user + after.children_system
    return used - before.children_user - before.children_system


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
