"""Metrics of objects: pycocotools' numbers, influences, plans, draws and scores of detections."""

import contextlib
import io
import json

import numpy as np
import pytest
from PIL import Image

from audit.errors import UsageError
from audit.scanning.scanning import scan
from audit.sources import open_source
from audit.subset.detect import read_objects
from audit.subset.matching import AREAS, THRESHOLDS, match_boxes
from audit.subset.precision import Evaluation, parse_object_metric
from tests.audit.annotations.datasets import coco, coco_tree
from tests.audit.subset.frames import boxes, call, document, made_world
from tests.conftest import picture

SUMMARY = ("map", "map50", "map75", "map-small", "map-medium", "map-large", "ar1", "ar10", "ar100")


def evaluated(world, weight=None, unit=None):
    document, found = world
    n, names = len(document["images"]), tuple(k["name"] for k in document["categories"])
    matches = match_boxes(boxes(document["annotations"], False), boxes(found, True), n, names)
    weight = np.ones(n) if weight is None else weight
    return Evaluation(matches, weight, np.arange(n) if unit is None else unit)


def values(evaluation, name):
    metric = parse_object_metric(name)
    parts = [evaluation.part(metric, c) for c in range(len(evaluation.matches.classes))]
    return np.array([-1.0 if part is None else part.value for part in parts])


# ---- pycocotools ----


@pytest.fixture
def library(peers):
    """The summary and the table of precision of pycocotools."""
    from pycocotools.coco import COCO
    from pycocotools.cocoeval import COCOeval

    def evaluate(document, found):
        with contextlib.redirect_stdout(io.StringIO()):
            truth = COCO()
            truth.dataset = document
            truth.createIndex()
            result = COCOeval(truth, truth.loadRes([dict(one) for one in found]), "bbox")
            for step in (result.evaluate, result.accumulate, result.summarize):
                step()
        return result.stats[:9], result.eval["precision"]

    return evaluate


WORLDS = {
    "plain": {"n": 60, "classes": 4},
    "ties in scores": {"n": 60, "classes": 4, "digits": 1},
    "empty and rare classes": {"n": 25, "classes": 40, "per": 2},
    "more than 100 detections of a class": {"n": 12, "classes": 1, "per": 8, "wrong": 130},
    "few objects": {"n": 8, "classes": 2, "per": 0.7, "wrong": 1},
}


@pytest.mark.slow
@pytest.mark.parametrize("name", WORLDS)
def test_the_whole_set_has_the_numbers_of_pycocotools(library, name):
    world = made_world(3, **WORLDS[name])
    summary, precision = library(*world)
    evaluation = evaluated(world)
    for metric, expected in zip(SUMMARY, summary, strict=True):
        of_classes = values(evaluation, metric)
        known = of_classes[of_classes >= 0]
        mean = known.mean() if known.size else -1.0
        assert mean == pytest.approx(expected, abs=1e-12), metric
    by_class = precision[:, :, :, 0, 2].mean((0, 1))
    assert values(evaluation, "map") == pytest.approx(by_class, abs=1e-12)


def one_picture(objects, found):
    """Evaluate a picture: objects as (x, width, crowd, area), found as (x, width, score)."""
    entry = {"image_id": 1, "category_id": 1}
    annotations = [
        entry | {"bbox": [x, 0, w, 10], "iscrowd": c, "area": a} for x, w, c, a in objects
    ]
    detections = [entry | {"bbox": [x, 0, w, 10], "score": s} for x, w, s in found]
    world = {"images": [{}], "annotations": annotations, "categories": [{"name": "a"}]}
    return evaluated((world, detections))


@pytest.mark.parametrize(
    ("objects", "found", "metric", "expected"),
    [
        ([(0, 10, 0, 100)], [(0, 10, 0.9)], "map", 1),
        ([(0, 10, 0, 100)], [], "map", 0),
        ([(0, 10, 0, 100)], [(50, 10, 0.9), (0, 10, 0.8)], "map", 0.5),
        ([(0, 10, 0, 100)], [(0, 10, 0.9), (0, 10, 0.8)], "map", 1),  # a double, after all recall
        ([(0, 10, 0, 100)], [(0, 20, 0.9)], "map50", 1),  # an overlap of exactly one half
        ([(0, 10, 0, 100)], [(0, 20, 0.9)], "map75", 0),
        # a crowd takes any number of detections, which then count neither way
        ([(0, 10, 0, 100), (50, 90, 1, 900)], [(50, 9, 0.9), (60, 9, 0.8), (0, 10, 0.7)], "map", 1),
        # an unassigned detection outside the range is left out, inside it is wrong
        ([(0, 10, 0, 100)], [(300, 999, 0.9), (0, 10, 0.8)], "map-small", 1),
        ([(0, 10, 0, 100)], [(300, 10, 0.9), (0, 10, 0.8)], "map-small", 0.5),
        # the annotated area decides of an object, that of its box of a detection
        ([(0, 10, 0, 2000)], [(0, 10, 0.9)], "map-small", -1),
        ([(0, 10, 0, 100), (30, 10, 0, 100)], [(0, 10, 0.9), (30, 10, 0.4)], "f1@0.5", 2 / 3),
    ],
)
def test_cases_by_hand(objects, found, metric, expected):
    assert values(one_picture(objects, found), metric)[0] == pytest.approx(expected)


def test_names_of_metrics():
    assert parse_object_metric("map75:cat").bits == (5,)
    assert THRESHOLDS[5] == pytest.approx(0.75)
    assert AREAS[parse_object_metric("map-large").size, 0] == 96**2
    assert parse_object_metric("f1@0.3").score == 0.3
    for other in ("accuracy", "f1@", "f1@2", "map60", "map-huge", "recall:cat"):
        assert parse_object_metric(other) is None


# ---- influences ----


@pytest.mark.parametrize("metric", ["map", "map50", "map-small", "ar100", "f1@0.4"])
def test_influence_is_the_derivative_by_a_picture(metric):
    """Of the smooth AP, the mean precision where objects are found; leverage taken out again."""
    world, rng = made_world(8, n=30, classes=2), np.random.default_rng(0)
    weight = rng.uniform(0.5, 2, 30)
    part = evaluated(world, weight).part(parse_object_metric(metric), 0)
    assert (weight * part.share).sum() == pytest.approx(1)
    assert (weight * part.influence).sum() == pytest.approx(0, abs=1e-12)
    held = weight * part.share
    leverage = (held**2).sum() / held.sum() ** 2

    def smooth(changed):
        found = evaluated(world, changed).part(parse_object_metric(metric), 0).found
        return float((changed * found).sum())

    for i in range(30):
        step = 1e-6 * (np.arange(30) == i)
        slope = (smooth(weight + step) - smooth(weight - step)) / 2e-6
        assert part.influence[i] * (1 - leverage) == pytest.approx(slope, abs=1e-6)


def test_weights_are_copies_and_scale_does_not_matter():
    truth, found = made_world(4, n=20, classes=2)

    def twice(entries):
        return entries + [dict(one, image_id=one["image_id"] + 20) for one in entries]

    double = dict(truth, images=truth["images"] * 2, annotations=twice(truth["annotations"]))
    copied = values(evaluated((double, twice(found))), "map50")
    weighted = values(evaluated((truth, found), np.full(20, 7.0)), "map50")
    # equal scores of copies lie side by side: the curve bends at other places by less than a step
    assert copied == pytest.approx(weighted, abs=0.03)
    assert weighted.tolist() == values(evaluated((truth, found)), "map50").tolist()


def test_few_pictures_show_that_they_make_it_too_high():
    world = made_world(1, n=1500, classes=2, per=1, wrong=2)
    whole = evaluated(world)
    metric, rng = parse_object_metric("map"), np.random.default_rng(1)
    true, raw, mended = whole.part(metric, 1).value, [], []
    for _ in range(60):
        few = np.sort(rng.choice(1500, 60, replace=False))
        part = Evaluation(whole.matches.among(few), np.ones(60), np.arange(60)).part(metric, 1)
        raw.append(part.value - true)
        mended.append(part.value - part.excess - true)
    assert np.mean(raw) > 2 * abs(np.mean(mended))


# ---- files and commands ----


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """A COCO file of 400 pictures, two models' detections, and a third that knows names only."""
    folder = tmp_path_factory.mktemp("objects")
    truth, old = made_world(5, n=400, classes=6, per=3)
    rng = np.random.default_rng(2)
    contents = {
        "gt": truth,
        "old": old,
        "new": [one | {"score": min(1.0, one["score"] * rng.uniform(0.8, 1.25))} for one in old],
        "named": [one | {"image_id": f"{one['image_id']:05d}",
                         "category_id": f"class{one['category_id'] - 1}"} for one in old],
        "pilot": [one for one in old if one["image_id"] <= 150],
        "tiny": [one for one in old if one["image_id"] <= 50],
    }  # fmt: skip
    for name, content in contents.items():
        (folder / f"{name}.json").write_text(json.dumps(content))
    return folder


def planned(files, name, *words):
    """Return the plan of that name, which is for the mean AP."""
    path = files / f"{name}.json"
    call("plan", "--from", files / "gt.json", "--metric", "map", "--output", path, *words)
    return json.loads(path.read_text())


def drawn(files, name, seed):
    """Return the path of a subset of the plan of that name."""
    subset = files / f"{name}.csv"
    source, plan = ["--from", files / "gt.json"], files / f"{name}.json"
    call("draw", *source, "--plan", plan, "--seed", seed, "-o", subset)
    return subset


def map_words(files, subset=None):
    """Return the words of a score by mean AP: of a subset, or else of the whole set."""
    truth = files / "gt.json"
    scored = [truth] if subset is None else [subset, "--from", truth]
    return ["score", *scored, "--metric", "map"]


def estimands(score):
    return score["models"][0]["metrics"][0]["estimands"]


@pytest.mark.slow
def test_plan_draw_and_score(files):
    truth, old = files / "gt.json", files / "old.json"
    plan = planned(files, "plan", "--half-width", 0.03, "--predictions", old)
    width = plan["estimands"]["generalisation"]["half_width"]
    assert width == pytest.approx(0.03, rel=0.08)
    assert plan["estimands"]["agreement"]["n_for_target"] < plan["n"]
    assert [c["label"] for c in plan["classes"]] == [f"class{k}" for k in range(6)]
    subset = map_words(files, drawn(files, "plan", 4))
    score = document(*subset, "--metric", "map50:class0", "--predictions", old)
    found = estimands(score)["generalisation"]
    assert (found["high"] - found["low"]) / 2 == pytest.approx(width, rel=0.2)
    exact = estimands(document(*map_words(files), "--predictions", old))
    assert exact["full-set"]["known"]
    assert exact["generalisation"]["low"] < exact["full-set"]["value"]
    known = values(evaluated((json.loads(truth.read_text()), json.loads(old.read_text()))), "map")
    assert exact["full-set"]["value"] == pytest.approx(known[known >= 0].mean(), abs=1e-12)
    assert found["low"] < exact["full-set"]["value"] < found["high"]
    assert [c["label"] for c in score["models"][0]["objects"]] == [f"class{k}" for k in range(6)]
    names = document(*subset, "--predictions", files / "named.json")
    assert names["models"][0]["metrics"] == score["models"][0]["metrics"][:1]


@pytest.mark.slow
def test_two_models_and_what_tells_them_apart(files):
    old = ["--predictions", files / "old.json"]
    both = [*old, "--predictions", files / "new.json"]
    plan = planned(files, "detect", "--detect", 0.02, *both)
    one = planned(files, "one", "--n", plan["n"], *old)
    name = "generalisation"
    two, alone = (p["estimands"][name]["detectable_difference"] for p in (plan, one))
    assert two == pytest.approx(0.02, rel=0.1)
    assert two < 0.6 * alone  # related models differ less than two that have nothing in common
    text = call(*map_words(files), *both)
    assert "than old on this set" in text
    assert "better detections: second model on" in text


@pytest.mark.slow
def test_scenes_are_taken_whole_and_rare_classes_brought_in(files):
    old = ["--predictions", files / "old.json"]
    plan = planned(files, "scenes", "--n", 20, "--group", "scene", *old)
    assert plan["n_units"] == 41
    text = call(*map_words(files, drawn(files, "scenes", 1)), *old)
    assert "files in 20 units drawn from 41" in text
    words = ["--n", 60, "--by", "rarest_class", "--set", "plan.allocation=equal"]
    numbers = [s["n"] for s in planned(files, "rare", *words, *old)["strata"]]
    assert max(numbers) - min(numbers) <= 1
    call(*map_words(files, drawn(files, "rare", 1)), *old)


@pytest.mark.slow
def test_classes_that_few_pictures_can_tell_of(files):
    old = ["--predictions", files / "old.json"]
    planned(files, "few", "--n", 12, *old)
    text = call(*map_words(files, drawn(files, "few", 2)), *old, "--by-class")
    assert "of 6 classes: this draw has too few images of the remaining classes (" in text
    assert "inconclusive" in text


@pytest.mark.slow
def test_a_pilot_stands_for_the_set(files):
    by_pilot, by_all = (
        planned(files, f"by_{name}", "--half-width", 0.05, "--predictions", files / f"{name}.json")
        for name in ("pilot", "old")
    )
    assert by_pilot["n"] == pytest.approx(by_all["n"], rel=0.35)
    assert any("a pilot of 150 images" in reason for reason in by_pilot["reasons"])


NARROW = ["--half-width", 0.02]
ERRORS = [
    (["plan", *NARROW], "Nothing is known of how map varies"),
    (["plan", *NARROW, "--predictions", "PILOT", "--baseline", "OLD"],
     "How far the next model will differ"),
    (["plan", "--n", 20, "--baseline", "OLD"], "a --half-width"),
    (["plan", *NARROW, "--predictions", "TINY"], "The pilot has 50 images"),
    (["plan", "--metric", "map:dog", "--n", 20], "no class 'dog' of objects"),
    (["plan", "--n", 20, "--group", "film"], "no key 'film'"),
    (["plan", "--n", 20, "--set", "plan.correlation=0.2"], "[plan] correlation is for metrics"),
    (["score", "GT", "--predictions", "GT"], "contains an object, but COCO's results"),
    (["score", "GT", "--metric", "accuracy", "--predictions", "OLD"], "give one kind"),
    (["score", "OLD", "--predictions", "OLD"], "is not a usable COCO file"),
    (["score", "GT", "--labels", "OLD", "--predictions", "OLD"], "--labels is for metrics"),
    (["score", "GT", "--slice", "scene", "--predictions", "OLD"], "--slice is for metrics"),
]  # fmt: skip


@pytest.mark.parametrize(("words", "sentence"), ERRORS)
def test_errors_are_one_sentence(files, words, sentence):
    names = {name.upper(): files / f"{name}.json" for name in ("gt", "old", "tiny", "pilot")}
    command, *words = (names.get(word, word) for word in words)
    if command == "plan":
        words += ["--from", names["GT"]]
    if "map:dog" not in words:
        words += ["--metric", "map"]
    error = call(command, *words, code=2)
    assert sentence in error
    assert error.count("\n") == 1


GOOD = {"image_id": 1, "category_id": 1, "bbox": [0, 0, 5, 5], "score": 0.5}
WRONG_DETECTIONS = [
    ({"score": None}, "a number of entry 0 is a text, null"),
    ({"bbox": [1, 2, 3]}, "the box of entry 0 has 3 numbers instead of 4"),
    ({"bbox": [1, 2, 3, float("nan")]}, "NaN or infinite"),
    ({"category_id": 77}, "category_id 77 is no class"),
    ({"image_id": 7777}, "no image_id, such as '7777'"),
]


@pytest.mark.parametrize(("change", "sentence"), WRONG_DETECTIONS)
def test_wrong_detections_are_refused(files, tmp_path, change, sentence):
    objects, _ = read_objects(files / "gt.json", None)
    path = tmp_path / "found.json"
    path.write_text(json.dumps([GOOD | change]))
    with pytest.raises(UsageError, match=sentence):
        objects.match(path, [])


BOX = {"id": 1, "image_id": 1, "category_id": 1, "bbox": [0, 0, 5, 5]}
FILE = {"id": 1, "file_name": "a.jpg"}
WRONG_SETS = [
    ({"images": [FILE, FILE]}, "no id, or the same"),
    ({"annotations": [BOX | {"bbox": [1, 2, 3]}]}, r"3 numbers instead of 4 \(annotations\[0\]"),
    ({"annotations": [BOX, BOX | {"bbox": [1, float("nan"), 3, 4]}]}, "annotation 1 has no box"),
    ({"annotations": [BOX, BOX | {"image_id": 9}]}, "does not list; 1 such"),
    ({"annotations": [BOX | {"category_id": None}]}, "no class"),
    ({"annotations": None}, "it needs `images`, `annotations`"),
    ({"images": [FILE, "b.jpg"]}, "an entry is not an object"),
]


@pytest.mark.parametrize(("change", "sentence"), WRONG_SETS)
def test_wrong_sets_are_refused(tmp_path, change, sentence):
    path = tmp_path / "set.json"
    document = {"images": [FILE], "annotations": [BOX], "categories": [{"id": 1, "name": "car"}]}
    path.write_text(json.dumps(document))
    assert read_objects(path, None)[0].classes == ("car",)
    path.write_text(json.dumps(document | change))
    with pytest.raises(UsageError, match=sentence):
        read_objects(path, None)


def test_keys_of_pictures_become_columns_and_ids_may_be_texts(tmp_path):
    path = tmp_path / "set.json"
    images = [{"id": i, "film": f"f{i}", "hour": i / 2, "more": {"a": 1}} for i in (10, 9, 11)]
    for image in images[1:]:
        image["file_name"] = f"sub/{image['id']}.jpg"
    annotations = [BOX | {"image_id": str(i), "area": 7.0} for i in (10, 11)]
    path.write_text(json.dumps({"images": images, "annotations": annotations}))
    objects, frame = read_objects(path, None)
    assert objects.ids == ("sub/9.jpg", "10", "sub/11.jpg")
    assert objects.classes == ("1",)
    assert objects.truth.picture.tolist() == [1, 2]
    rows = frame.select("film", "hour", "n_objects").rows()
    assert rows == [("f9", 4.5, 0), ("f10", 5.0, 1), ("f11", 5.5, 1)]
    assert "more" not in frame.columns


def test_surplus_detections_are_counted(files, tmp_path):
    objects, frame = read_objects(files / "gt.json", None)
    path, notes = tmp_path / "found.json", []
    path.write_text(json.dumps([GOOD, GOOD | {"image_id": "elsewhere.jpg"}]))
    assert objects.match(path, notes).picture.tolist() == [0]
    assert "1 detections are for images that are not in gt.json" in notes[0]
    assert frame["rarest_class"].drop_nulls().is_in(objects.classes).all()


# ---- masks ----


@pytest.fixture(scope="module")
def mask_folders(tmp_path_factory):
    """160 masks of classes 0 to 2 and void, of four folders, and those of two models."""
    root, rng = tmp_path_factory.mktemp("masks"), np.random.default_rng(3)
    for i in range(160):
        own = np.zeros((24, 30), np.uint8)
        own[: rng.integers(4, 20), : rng.integers(4, 28)] = 1
        own[rng.integers(12, 20) :, 8:14] = 2
        own[:, -2:] = 255
        models = {"truth": own}
        for name, rate in (("a", 0.15), ("b", 0.1)):
            wrong = rng.random(own.shape) < rate * rng.uniform(0.3, 2)
            models[name] = np.where(wrong, rng.integers(0, 4, own.shape), own).astype(np.uint8)
            models[name][own == 255] = 7  # void is left out whatever is predicted
        for name, mask in models.items():
            path = root / name / f"city{i % 4}" / f"{i:03d}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(mask).save(path)
    return root


def mean_iou(root, model):
    both, either = np.zeros(3), np.zeros(3)
    for path in sorted((root / "truth").rglob("*.png")):
        own = np.asarray(Image.open(path))
        said = np.asarray(Image.open(root / model / path.relative_to(root / "truth")))
        for k in range(3):
            a, b = own == k, (said == k) & (own != 255)
            both[k] += (a & b).sum()
            either[k] += (a | b).sum()
    return (both / either).mean()


@pytest.mark.slow
def test_mean_iou_of_masks(mask_folders, tmp_path):
    truth, subset = mask_folders / "truth", tmp_path / "subset.csv"
    model, other = (["--predictions", mask_folders / name] for name in ("a", "b"))
    metric, source = ["--metric", "miou"], ["--from", mask_folders / "truth"]
    plan, grouped = tmp_path / "plan.json", tmp_path / "cities.json"
    call("plan", *source, *metric, "--n", 60, *model, "--output", plan)
    planned = json.loads(plan.read_text())["estimands"]["generalisation"]["half_width"]
    call("draw", *source, "--plan", plan, "--seed", 1, "-o", subset)
    score = document("score", subset, *source, *metric, "--metric", "miou:2", *model, *other)
    found = estimands(score)
    exact = mean_iou(mask_folders, "a")
    assert found["full-set"]["low"] < exact < found["full-set"]["high"]
    width = (found["generalisation"]["high"] - found["generalisation"]["low"]) / 2
    assert width == pytest.approx(planned, rel=0.1)
    assert score["comparison"]["estimands"]["full-set"]["verdict"] == "better"
    whole = estimands(document("score", truth, *metric, *model))["full-set"]
    assert whole["value"] == pytest.approx(exact, abs=1e-12)
    call("plan", *source, *metric, "--n", 4, "--group", "folder", *model, "--output", grouped)
    assert json.loads(grouped.read_text())["n_units"] == 4


def test_masks_that_cannot_be_compared(mask_folders, tmp_path):
    truth, mask = mask_folders / "truth", tmp_path / "city0" / "000.png"
    mask.parent.mkdir()
    words = ["score", truth, "--metric", "miou", "--predictions", tmp_path]
    for shape, sentence in (((5, 5), "is of 5 x 5 px"), ((24, 30, 3), "pixels of mode RGB")):
        Image.fromarray(np.zeros(shape, np.uint8)).save(mask)
        assert sentence in call(*words, code=2)
    mask.write_bytes((truth / "city0" / "000.png").read_bytes())
    assert "159 of 160 images have no predicted mask" in call(*words, code=2)
    assert "map needs boxes" in call("plan", "--from", truth, "--metric", "map", "--n", 9, code=2)


# ---- an earlier model, a run ----


@pytest.mark.slow
def test_an_earlier_model_narrows_the_interval(files):
    old, new = files / "old.json", files / "new.json"
    planned(files, "based", "--n", 100, "--predictions", old)
    subset = map_words(files, drawn(files, "based", 3))
    words = [*subset, "--plan", files / "based.json", "--baseline", old, "--predictions"]
    exact, exact_old = (
        estimands(document(*map_words(files), "--predictions", model))["full-set"]["value"]
        for model in (new, old)
    )
    model = document(*words, new)["models"][0]
    plain, narrow = (
        model[part][0]["estimands"]["full-set"] for part in ("metrics", "with_baseline")
    )
    assert narrow["high"] - narrow["low"] < 0.7 * (plain["high"] - plain["low"])
    assert narrow["low"] < exact < narrow["high"]
    same = document(*words, old)["models"][0]["with_baseline"][0]["estimands"]["full-set"]
    assert same["value"] == pytest.approx(exact_old, abs=0.01)


@pytest.mark.slow
def test_an_earlier_model_needs_fewer_pictures(files):
    words = ["--half-width", 0.03, "--target", "this-set", "--predictions", files / "new.json"]
    models = ["--predictions", files / "new.json", "--baseline", files / "old.json"]
    plain = planned(files, "plain", *words)
    plan = planned(files, "less", *words, "--baseline", files / "old.json")
    assert plan["n"] < 0.9 * plain["n"]
    width = plan["estimands"]["agreement"]["half_width"]
    assert width == pytest.approx(0.03, rel=0.1)
    assert any("known on all images" in reason for reason in plan["reasons"])
    subset = map_words(files, drawn(files, "less", 1))
    score = document(*subset, "--plan", files / "less.json", *models)
    found = score["models"][0]["with_baseline"][0]["estimands"]["full-set"]
    assert (found["high"] - found["low"]) / 2 == pytest.approx(width, rel=0.3)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A scanned tree of 30 pictures with COCO annotations, and detections by file name."""
    root, rng = tmp_path_factory.mktemp("scanned"), np.random.default_rng(4)
    boxes = [(int(rng.integers(1, 31)), *rng.integers(1, 20, 2).tolist(), 20, 15)
             for _ in range(60)]  # fmt: skip
    document = coco(30, boxes, area=250.0)
    coco_tree(root, document, 30)
    for i in range(30):  # no two alike: one of a group of copies would stand for all of them
        Image.fromarray(picture(i, 64, 48)).save(root / "images" / f"{i}.jpg", quality=90)
    found = [
        {"image_id": f"{i - 1}.jpg", "category_id": "cat", "score": float(rng.random()),
         "bbox": [x + int(rng.integers(0, 6)), y, w, h]}
        for i, x, y, w, h in boxes
    ]  # fmt: skip
    (root.parent / "found.json").write_text(json.dumps(found))
    (root.parent / "truth.json").write_text(json.dumps(document))
    out = tmp_path_factory.mktemp("run") / "run"
    scan(open_source([str(root)]), out, jobs=1, checks=["BOX001"])
    return out, root.parent / "truth.json", root.parent / "found.json"


@pytest.mark.slow
def test_a_run_scores_as_its_annotation_file(run, tmp_path):
    out, truth, found = run
    model, every = ["--predictions", found], ["--split", "all"]
    scores = [document("score", *words, "--metric", "map", *model)
              for words in ([out, *every], [truth])]  # fmt: skip
    for score in scores:
        assert score["n_files"] == 30
        assert score["models"][0]["objects"][0]["label"] == "cat"
    by_run, by_file = (estimands(score)["full-set"]["value"] for score in scores)
    assert by_run == pytest.approx(by_file, abs=1e-12)
    plan, subset, metric = tmp_path / "plan.json", tmp_path / "s.csv", ["--metric", "map50"]
    call("plan", out, *every, *metric, "--n", 20, *model, "--by", "brightness", "--output", plan)
    call("draw", out, *every, "--plan", plan, "--seed", 1, "-o", subset)
    text = call("score", subset, "--from", out, *every, *metric, *model)
    assert "20 files in 20 units drawn from 30" in text
    assert "has no boxes" not in text
