"""Are labels accused by a model that knows nothing, and does the review list hold what it says?

    python benchmarks/null_labels.py null [CACHE] [--sets 300] [--data ../shared/data]
    python benchmarks/null_labels.py noise [CACHE] [--seeds 5] [--beside]
    python benchmarks/null_labels.py few [CACHE] [--sets 50] [--data ../shared/data]

Pictures are described once, by the built-in vectors, and kept in CACHE with the classes that a
small network gives to those that it did not see; then labels alone are made
and judged, a set in a fraction of a second.

`null`: labels are dealt at random to photographs, small photographs, drawn digits and scenes of six
frames each (a scene has one label; told as one group, and not told), 2 to 20 classes of one size
exactly or about. Whatever is reported is wrong. Goal: any report in at most 1 % of sets.

`noise`: labels of cifar10-mini (6,000) are changed: uniformly, to the class that looks alike, and
by difficulty, as people err (where the network is unsure, to what it takes the picture for); 0, 2,
9 and 40 % of them. Per set: average precision, recall and precision of what is reported, how long
the review list is, what it holds and what it said it would. --beside: cleanlab and its Datalab on
the same vectors (`pip install "cleanlab[datalab]"`). --embedder (`null`, `noise`): the vectors of
a model, as `audit scan` takes it.

`few`: of 2 to 8 classes of drawn digits or of cifar10-mini, 100 to 900 pictures, no label is wrong,
or a --share (2 %; 3 labels at least) are, of any class alike, or --hard: by difficulty. Counted are
sets with a report, and what is reported. --beside: cleanlab's Datalab on the same vectors
(`pip install "cleanlab[datalab]"`).
"""

from __future__ import annotations

import tarfile
from pathlib import Path
from typing import Annotated, Any

import cv2
import numpy as np
import polars as pl
import typer
from bench import Document, cifar_pictures, hall, measures, photographs, read_picture, real_data
from null_pictures import digit
from vectors import ALIKE, average_precision, cleanlab, with_noise

from audit.checks.label_suspect import SuspectLabel
from audit.embeddings.embedder import Embedder, load_embedder
from audit.embeddings.judged import judge_vectors
from audit.embeddings.label_tables import join_frames
from audit.embeddings.nearest import compare_axes, nearest_rows
from audit.embeddings.patches import describe_patches
from audit.embeddings.ridge import decompose, left_out_scores
from audit.embeddings.vectors import directions
from audit.picture.preview import squeeze_picture
from audit.picture.signatures import make_signature, stack_signatures

app = hall(__doc__)
CACHE = Path("/tmp/null_labels")
FRAMES, AXES = 6, 256
CLASSES = (2, 3, 5, 10, 20)
Pool = dict[str, np.ndarray]


# ---- pictures, described once ----


def photos(real: Path) -> list[np.ndarray]:
    found = [read_picture(path) for path in photographs(real)]
    with tarfile.open(real / "photos-800.tar") as archive:
        for member in archive:
            handle = archive.extractfile(member) if member.isfile() else None
            decoded = cv2.imdecode(np.frombuffer(handle.read(), np.uint8), 1) if handle else None
            if decoded is not None:
                found.append(np.ascontiguousarray(decoded[..., ::-1]))
    return found


def frames(picture: np.ndarray, rng: np.random.Generator) -> list[np.ndarray]:
    """Return frames of one scene: the camera moves and the light changes."""
    h, w = picture.shape[:2]
    places = np.cumsum(rng.uniform(-0.03, 0.05, (FRAMES, 2)), 0).clip(0, 0.2)
    cut = [picture[int(h * y) :, int(w * x) :][: int(0.8 * h), : int(0.8 * w)] for y, x in places]
    return [np.clip(part * rng.uniform(0.85, 1.15), 0, 255).astype(np.uint8) for part in cut]


def pool(cache: Path, data: Path | None, name: str, embedder: str | None = None) -> Pool:
    """Return `views` (v, n, 256), `scene` (n,) and `label` (n,), made once a cache."""
    kept = cache / f"{name}{f'-{embedder}' if embedder else ''}.npz"
    if not kept.exists():
        real, rng = real_data(data, "cifar10-mini.tar"), np.random.default_rng(0)
        label = np.zeros(0, np.int64)
        cache.mkdir(parents=True, exist_ok=True)
        if name == "cifar":
            names, found = zip(*cifar_pictures(real), strict=True)
            pictures = list(found)
            label = np.unique([n.split("/")[1] for n in names], return_inverse=True)[1]
            small = np.stack(pictures)
            np.save(cache / "unseen.npy", unseen(small, label))
        elif name == "digits":
            pictures = [digit(rng, n % 10) for n in range(1000)]
        elif name == "scenes":
            pictures = [f for one in photos(real)[:200] for f in frames(one, rng)]
        else:
            pictures = photos(real)
        scene = np.arange(len(pictures)) // (FRAMES if name == "scenes" else 1)
        if embedder:
            views = model_views(pictures, load_embedder(embedder))
        else:
            table = stack_signatures([make_signature(p) for p in pictures])
            views = describe_patches(table).views
        axes = np.linalg.eigh(np.tensordot(views, views, ((0, 1), (0, 1))))[1][:, : -AXES - 1 : -1]
        np.savez(kept, views=(views @ axes).astype(np.float32), scene=scene, label=label)
    return dict(np.load(kept))


def model_views(pictures: list[np.ndarray], model: Embedder) -> np.ndarray:
    """Return the directions (1, n, d) of a model's vectors, as a scan with --embedder has them."""
    batches = (pictures[i : i + model.batch] for i in range(0, len(pictures), model.batch))
    squares = (np.stack([squeeze_picture(p, model.size) for p in batch]) for batch in batches)
    return directions(np.concatenate([model.describe(square) for square in squares]))[None]


def unseen(pictures: np.ndarray, label: np.ndarray) -> np.ndarray:
    """Return probabilities (n, 10) of a small network that did not see the picture.

    It has one hidden layer, of random cosines, over 16 px: it sees something else than the vectors
    that judge, as people do. (A network of three convolutions that names 60 % sees what they see:
    what it takes for another class, they take for it too.)
    """
    rng, n = np.random.default_rng(0), len(label)
    small = [cv2.resize(one, (16, 16), interpolation=cv2.INTER_AREA) for one in pictures]
    flat = np.stack(small).reshape(n, -1).astype(np.float32) / 255
    main = decompose(flat - flat.mean(0)).turned[:, :80]
    main = main / np.sqrt(np.maximum((main**2).sum(0), 1e-9)) ** 0.5
    hidden = np.cos(
        main / main.std() @ rng.normal(size=(80, 800)) * 0.12 + rng.uniform(0, 6.28, 800)
    )
    hidden = (hidden - hidden.mean(0)).astype(np.float32)
    scores = left_out_scores(decompose(hidden), label, np.arange(n), 10)
    p = np.exp(scores / 0.12)
    p = np.asarray(p / p.sum(1, keepdims=True))
    print(f"the network names {(p.argmax(1) == label).mean():.1%} unseen", flush=True)
    return p


# ---- labels that mean nothing ----


def null_set(pools: dict[str, Pool], number: int) -> tuple[str, np.ndarray, np.ndarray, np.ndarray]:
    """Return a name, views (v, n, 256), labels dealt at random (n,), and groups that are told."""
    rng = np.random.default_rng(number)
    name = list(pools)[number % len(pools)]
    k, even = CLASSES[number // len(pools) % len(CLASSES)], bool(number // 20 % 2)
    chosen = pools[name]
    scenes = rng.permutation(int(chosen["scene"].max()) + 1)
    size = FRAMES if name == "scenes" else 1
    each = int(
        rng.integers(max(10 // size, 60 // size // k) + 1, max(600 // size // k, 31 // size))
    )
    scenes = scenes[: each * k]
    dealt = rng.permutation(np.arange(len(scenes)) % k)
    if not even:
        dealt = rng.choice(k, len(scenes), p=rng.dirichlet(np.full(k, 5.0)))
    rows = (scenes[:, None] * size + np.arange(size)).ravel()
    told = np.repeat(np.arange(len(scenes)), size) if number // 40 % 2 else np.arange(len(rows))
    kind = (
        f"{name}{', told' if size > 1 and number // 40 % 2 else ''}, {'even' if even else 'uneven'}"
    )
    return kind, chosen["views"][:, rows], np.repeat(dealt, size), told


def judge(
    views: np.ndarray, labels: np.ndarray, groups: np.ndarray, names: list[str] | None = None
) -> Any:
    mean = views.mean(0)
    axes = compare_axes(decompose(mean - mean.mean(0)))
    near = nearest_rows(axes, groups)
    if names:
        groups = join_frames(pl.Series(names), groups, near)
        near = nearest_rows(axes, groups)
    return judge_vectors(views, near, labels, groups, int(labels.max()) + 1)


def reported(found: Any, labels: np.ndarray) -> np.ndarray:
    """Return the rows that LABEL006 reports at its defaults."""
    doubted = np.bincount(labels, found.error_chance > 0.5) / np.maximum(np.bincount(labels), 1)
    likelier = (found.suggested_probability > found.probability) & (doubted[labels] <= 0.5)
    rows = np.flatnonzero(likelier & (found.gain >= SuspectLabel.Params.min_gain))
    rows = rows[np.argsort(-found.surely[rows], kind="stable")]
    chance = found.surely[rows]
    of_those_before = np.cumsum(chance) / np.arange(1, len(rows) + 1)
    sure = chance >= SuspectLabel.Params.min_chance
    out = np.zeros(len(labels), np.bool_)
    out[rows[sure | (of_those_before >= 1 - SuspectLabel.Params.max_false)]] = True
    return out


@measures(app)
def null(
    cache: Annotated[Path, typer.Argument()] = CACHE,
    sets: int = 300,
    first: int = 0,
    data: Path | None = None,
    embedder: str | None = None,
) -> tuple[Document, bool]:
    """How often is a label accused where labels mean nothing?"""
    pools = {n: pool(cache, data, n, embedder) for n in ("photos", "cifar", "digits", "scenes")}
    hits: dict[str, list[int]] = {}
    for number in range(first, first + sets):
        kind, views, labels, groups = null_set(pools, number)
        small = np.bincount(labels)[labels] < 10  # as a scan leaves out small classes
        keep = np.flatnonzero(~small)
        labels = np.unique(labels[keep], return_inverse=True)[1]
        if labels.max(initial=0) < 1 or len(keep) < 50:
            continue
        names = [f"{row:05}.jpg" for row in keep]  # scenes lie one behind the other
        count = int(reported(judge(views[:, keep], labels, groups[keep], names), labels).sum())
        hits.setdefault(kind, []).append(count)
        if count:
            print(
                f"set {number}: {count} of {len(keep)} in {labels.max() + 1} ({kind})", flush=True
            )
    table = {kind: [sum(c > 0 for c in found), len(found)] for kind, found in hits.items()}
    some, every = (sum(counts) for counts in zip(*table.values(), strict=True))
    return {"sets": every, "accused": some, "by kind": table}, some <= 0.01 * every


# ---- labels of which a known share is wrong ----


def by_difficulty(label: np.ndarray, p: np.ndarray, rate: float, seed: int) -> np.ndarray:
    """Return labels of which a share is wrong, where the network is unsure, as it errs."""
    rng, rows = np.random.default_rng(seed), np.arange(len(label))
    unsure = 1 - p[rows, label] + 1e-3
    scale = rate / unsure.mean()
    for _ in range(50):  # chances are at most 1
        scale *= rate / np.minimum(scale * unsure, 1).mean()
    others = p + 1e-4
    others[rows, label] = 0
    drawn = (others.cumsum(1) < rng.random((len(label), 1)) * others.sum(1, keepdims=True)).sum(1)
    return np.where(rng.random(len(label)) < np.minimum(scale * unsure, 1), drawn, label)


def recall_at(score: np.ndarray, wrong: np.ndarray, precision: float = 0.8) -> float:
    """Return the recall of the longest start of the order that is so precise."""
    hits = np.cumsum(wrong[np.argsort(-score, kind="stable")])
    good = np.flatnonzero(hits >= precision * np.arange(1, len(hits) + 1))
    return float(hits[good[-1]] / hits[-1]) if len(good) else 0.0


@measures(app)
def noise(
    cache: Annotated[Path, typer.Argument()] = CACHE,
    seeds: int = 5,
    first_seed: int = 0,
    data: Path | None = None,
    beside: bool = False,
    embedder: str | None = None,
) -> Document:
    """What is found of labels that are wrong, and does the forecast hold?"""
    pool(cache, data, "cifar")  # makes the classes of the small network, too
    chosen = pool(cache, data, "cifar", embedder)
    p, names = np.load(cache / "unseen.npy"), sorted(ALIKE)
    views, label, alone = chosen["views"], chosen["label"], chosen["scene"]
    makes = {
        "uniform": lambda rate, seed: with_noise(label, names, rate, "symmetric", seed),
        "by class": lambda rate, seed: with_noise(label, names, rate, "class-dependent", seed),
        "by difficulty": lambda rate, seed: by_difficulty(label, p, rate, seed),
    }
    document: Document = {}
    n = len(label)
    for kind, rate in [("uniform", 0.0), *((k, r) for r in (0.02, 0.09, 0.4) for k in makes)]:
        for seed in range(first_seed, first_seed + (seeds if rate else 1)):
            given = makes[kind](rate, seed)
            wrong = given != label
            found = judge(views, given, alone)
            flagged, first, every = reported(found, given), found.review_list(), found.forecast(n)
            held = int(wrong[found.order()[: first.n]].sum())
            row = {
                "wrong": int(wrong.sum()), "gain": round(found.gain, 1), "of_all": every.wrong,
                "of_all_low": every.low, "of_all_high": every.high,
                "reported": int(flagged.sum()), "right": int(wrong[flagged].sum()),
                "listed": first.n, "held": held, "forecast": first.wrong, "low": first.low,
                "high": first.high,
            }  # fmt: skip
            if wrong.any():
                row["ap"] = average_precision(-found.quality, wrong)
                row["recall_at_.8"] = recall_at(-found.quality, wrong)
                if beside:
                    scaled = views[0] / (views[0].std(0) + 1e-6)
                    rival, issues = cleanlab(scaled, given)
                    row["cleanlab"] = {
                        "ap": average_precision(rival, wrong), "recall": recall_at(rival, wrong),
                        "flagged": int(issues.sum()), "right": int(wrong[issues].sum()),
                    }  # fmt: skip
                    issues = datalab(scaled, given)
                    row["datalab"] = {
                        "flagged": int(issues.sum()),
                        "right": int(wrong[issues].sum()),
                    }
            document[f"{kind} {rate:.0%} {seed}"] = row
            print(f"{kind} {rate:.0%} {seed}: {row}", flush=True)
    return document


def datalab(vectors: np.ndarray, given: np.ndarray) -> np.ndarray:
    """Return which labels cleanlab's Datalab calls wrong, by features alone."""
    from cleanlab import Datalab

    lab = Datalab({"label": given.tolist()}, label_name="label", verbosity=0)
    lab.find_issues(features=vectors, issue_types={"label": {}})
    return np.asarray(lab.get_issues("label")["is_label_issue"].to_numpy(), np.bool_)


@measures(app)
def few(
    cache: Annotated[Path, typer.Argument()] = CACHE,
    sets: int = 50,
    first: int = 0,
    data: Path | None = None,
    share: float = 0.02,
    names: str = "digits,cifar",
    hard: bool = False,
    beside: bool = False,
) -> Document:
    """Are a few wrong labels reported, and none where none is wrong?"""
    document: Document = {}
    for name in names.split(","):
        chosen = pool(cache, data, name)
        n = chosen["views"].shape[1]
        label = chosen["label"] if len(chosen["label"]) else np.arange(n) % 10
        for wanted in (0.0, share):
            row = {"sets": 0, "with_report": 0, "wrong": 0, "reported": 0, "right": 0}
            row |= {"datalab": 0, "datalab_right": 0} if beside else {}
            for number in range(first, first + sets):
                rng = np.random.default_rng([number, 7])
                k = int(rng.integers(2, 9))
                classes = np.sort(rng.permutation(10)[:k])
                rows = rng.permutation(np.flatnonzero(np.isin(label, classes)))
                rows = rows[: int(rng.integers(100, 900))]
                true = np.searchsorted(classes, label[rows])
                bad = rng.permutation(len(rows))[: max(3, round(wanted * len(rows)))]
                given = true.copy()
                if wanted and hard:
                    p = np.load(cache / "unseen.npy")[rows][:, classes]
                    given = by_difficulty(true, p / p.sum(1, keepdims=True), wanted, number)
                elif wanted:
                    given[bad] = (true[bad] + rng.integers(1, k, len(bad))) % k
                found = judge(chosen["views"][:, rows], given, np.arange(len(rows)))
                flagged, wrong = reported(found, given), given != true
                row["sets"] += 1
                row["with_report"] += bool(flagged.any())
                row["wrong"] += int(wrong.sum())
                row["reported"] += int(flagged.sum())
                row["right"] += int(wrong[flagged].sum())
                if beside:
                    view = chosen["views"][0, rows]
                    issues = datalab(view / (view.std(0) + 1e-6), given)
                    row["datalab"] += int(issues.sum())
                    row["datalab_right"] += int(wrong[issues].sum())
            document[f"{name} {wanted:.0%}"] = row
            print(f"{name} {wanted:.0%}: {row}", flush=True)
    return document


if __name__ == "__main__":
    app()
