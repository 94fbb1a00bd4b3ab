"""Tasks of labelling tools: out, changed by a person, and back as decisions."""

import json
import xml.etree.ElementTree as ET
from collections.abc import Callable
from pathlib import Path

import pytest

import audit
from audit.decisions.store import DecisionStore
from audit.errors import UsageError
from audit.exports.review_tasks import export_review, list_tasks, read_review
from tests.audit.conftest import Command

DARK, COPY, DOG = "train/cat/copy.jpg", "train/cat/0.jpg", "train/dog/wrong.jpg"


def change_studio(path: Path, said: dict[str, dict[str, str]]) -> Path:
    """What Label Studio exports after people answered: annotations beside the predictions."""
    tasks = json.loads((path / "tasks.json").read_text("utf-8"))
    for number, task in enumerate(tasks):
        answers = said.get(task["data"]["sample_id"])
        if answers is None:
            continue
        task |= {"id": number, "project": 3}
        exported = task.get("annotations") or task["predictions"]
        given = {r["from_name"]: r for r in exported[0]["result"]}
        for name, value in answers.items():
            given[name] = {
                "id": "x", "from_name": name, "to_name": "image", "type": "choices",
                "value": {"choices": [value]}, "origin": "manual",
            }  # fmt: skip
        task["annotations"] = [
            {"id": number, "was_cancelled": False, "completed_by": 1, "result": [*given.values()]},
            {"id": 99, "was_cancelled": True, "result": []},
        ]
    (path / "export.json").write_text(json.dumps(tasks), "utf-8")
    return path / "export.json"


def change_cvat(path: Path, said: dict[str, dict[str, str]]) -> Path:
    """What CVAT exports after people answered: the same tree, other values, written its way."""
    tree = ET.parse(path / "annotations.xml")
    for image in tree.iter("image"):
        values = {one.get("name"): one for one in image.iter("attribute")}
        for name, value in said.get(values["sample"].text or "", {}).items():
            values[name].text = value
    ET.indent(tree)
    tree.write(path / "export.xml", encoding="utf-8", xml_declaration=True)
    return path / "export.xml"


TOOLS: dict[str, Callable[[Path, dict[str, dict[str, str]]], Path]] = {
    "label-studio": change_studio,
    "cvat": change_cvat,
}


@pytest.mark.slow
@pytest.mark.parametrize("tool", TOOLS)
def test_what_people_changed_comes_back_once(own: audit.Run, tool: str, tmp_path: Path) -> None:
    export_review(own.path, tmp_path / "out", tool)
    said = {
        COPY: {"class": "owl", "verdict": "keep"},
        DARK: {"verdict": "drop"},
        DOG: {"verdict": "false-positive"},
    }
    path = TOOLS[tool](tmp_path / "out", said)
    review = read_review(own.path, path)
    wanted = [(str(e.verb), e.value, e.subject) for e in review.entries if e.kind == "sample"]
    assert wanted == [("relabel", "owl", COPY), ("drop", None, DARK), ("keep", None, COPY)]
    waived = {e.subject for e in review.entries if e.kind == "finding"}
    assert waived
    assert {str(e.verb) for e in review.entries if e.kind == "finding"} == {"false-positive"}
    DecisionStore(own.path).record(review.entries)
    images = {row["id"]: row["decision"] for row in own.images.iter_rows(named=True)}
    assert images[DARK] == "drop"
    kept = dict(own.kept().select("id", "label").iter_rows())
    assert kept[COPY] == "owl"
    assert DARK not in kept
    again = read_review(own.path, path)
    assert again.entries == []
    # what was decided goes out again, and says nothing new
    export_review(own.path, tmp_path / "out", tool, replace=True)
    source = {"cvat": "annotations.xml", "label-studio": "tasks.json"}[tool]
    assert read_review(own.path, tmp_path / "out" / source).entries == []


def test_tasks_hold_the_pictures_of_the_findings_chosen(
    own: audit.Run, tmp_path: Path, command: Command
) -> None:
    every = {task.id: task for task in list_tasks(own.path)}
    copies = list_tasks(own.path, codes=["DUP001"])
    assert {DARK, COPY} <= {task.id for task in copies} < every.keys()
    assert all(said.startswith("DUP001: ") for task in copies for said in task.said)
    assert len(list_tasks(own.path, codes=["DUP", "IMG"])) > len(copies)
    called = command("export", own.path, "--out", tmp_path / "o", "--format", "cvat",
                     "--code", "dup001")  # fmt: skip
    assert called[0] == 0
    names = [i.get("name") for i in ET.parse(tmp_path / "o/annotations.xml").iter("image")]
    assert names == [task.id for task in copies]
    with pytest.raises(UsageError, match="no open finding of BOX about an image"):
        export_review(own.path, tmp_path / "p", "cvat", ["BOX"])
    called = command("export", own.path, "--out", tmp_path / "q", "--code", "DUP001")
    assert called[0] == 2


@pytest.mark.parametrize("tool", TOOLS)
def test_another_dataset_is_refused_and_edited_pictures_are_counted(
    own: audit.Run, tool: str, tmp_path: Path
) -> None:
    export_review(own.path, tmp_path / "out", tool)
    content = "content_hash" if tool == "label-studio" else "content"
    path = TOOLS[tool](tmp_path / "out", {DARK: {"verdict": "drop"}, COPY: {"verdict": "keep"}})
    hashes = dict(own.images.select("id", "content_hash").iter_rows())
    text = path.read_text("utf-8")
    # DARK and COPY have the same bytes: the file of another picture stands for an edit
    path.write_text(text.replace(f"{DARK}", "train/gone.jpg"), "utf-8")
    review = read_review(own.path, path)
    assert [e.subject for e in review.entries] == [COPY]
    assert review.ignored["images that are not in the run"] == 1
    other = text
    for digest in set(hashes.values()) - {None}:
        other = other.replace(str(digest), "0" * 64)
    path.write_text(other, "utf-8")
    assert content in other
    with pytest.raises(UsageError, match="another dataset"):
        read_review(own.path, path)


def test_what_is_not_understood_is_counted(own: audit.Run, tmp_path: Path) -> None:
    export_review(own.path, tmp_path / "out", "cvat")
    path = tmp_path / "out" / "annotations.xml"
    text = path.read_text("utf-8").replace(
        "</tag>", '</tag><tag label="blurry"/><box label="cat" xtl="1"/>', 1
    )
    path.write_text(text.replace('label="audit"', 'label="other"', 2), "utf-8")
    ignored = read_review(own.path, path).ignored
    assert ignored["shapes, which are neither a class nor a verdict"] == 1
    assert ignored["tags other than audit"] == 3
    assert ignored["images without their one tag audit"] == 2
    export_review(own.path, tmp_path / "studio", "label-studio")
    path = change_studio(tmp_path / "studio", {DARK: {"verdict": "drop"}, COPY: {"verdict": "hm"}})
    tasks = json.loads(path.read_text("utf-8"))
    first = next(t for t in tasks if t["data"]["sample_id"] == DARK)
    twice = json.loads(json.dumps(first["annotations"][0]).replace("drop", "keep"))
    first["annotations"].append(twice)
    tasks += [{"data": {"image": "x"}}]
    path.write_text(json.dumps(tasks), "utf-8")
    ignored = read_review(own.path, path).ignored
    assert ignored["images with different answers of two people"] == 1
    assert ignored["unknown verdicts, such as 'hm'"] == 1
    assert ignored["tasks without sample_id, which `audit export` did not write"] == 1
    assert ignored["tasks without an annotation"] == len(tasks) - 3


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.json", "{"), ("a.json", '{"a": 1}'), ("a.json", "[]"), ("a.xml", "<a>"),
        ("a.xml", "<html/>"), ("a.xml", '<!DOCTYPE a [<!ENTITY b "c">]><annotations/>'),
        ("a.zip", ""),
    ],
    ids=range(7),
)  # fmt: skip
def test_files_that_are_none_are_a_sentence(
    own: audit.Run, name: str, text: str, tmp_path: Path
) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(UsageError, match=name):
        read_review(own.path, tmp_path / name)


def test_the_command_shows_first_and_records_with_yes(
    own: audit.Run, tmp_path: Path, command: Command
) -> None:
    export_review(own.path, tmp_path / "out", "label-studio")
    path = change_studio(tmp_path / "out", {DARK: {"verdict": "drop"}})
    code, shown, _ = command("decide", own.path, "--from", path)
    assert (code, DARK in shown) == (0, True)
    assert DecisionStore(own.path).log() == []
    assert "Recorded 1 decision" in command("decide", own.path, "--from", path, "--yes")[2]
    assert [(d.subject, d.note) for d in DecisionStore(own.path).log()] == [
        (DARK, "from export.json")
    ]


SOURCES = {"cvat": "annotations.xml", "label-studio": "tasks.json"}


@pytest.mark.parametrize("tool", TOOLS)
def test_decisions_newer_than_the_export_stay_and_conflicts_are_shown(
    own: audit.Run, tool: str, tmp_path: Path, command: Command
) -> None:
    own.decide([DARK, COPY, DOG], "relabel:dog")
    export_review(own.path, tmp_path / "out", tool)
    own.decide([DARK, COPY, DOG], "relabel:owl")
    # nobody touched the file: the class at the export is no decision
    assert read_review(own.path, tmp_path / "out" / SOURCES[tool]).entries == []
    said = {DARK: {"verdict": "drop"}, COPY: {"class": "owl"}, DOG: {"class": "cat"}}
    path = TOOLS[tool](tmp_path / "out", said)
    review = read_review(own.path, path)
    assert review.entries == []
    asked = "the exported state is dog and undecided, now it is owl and undecided"
    assert review.conflicts == [f"{DARK}: drop; {asked}", f"{DOG}: relabel:cat; {asked}"]
    before = len(DecisionStore(own.path).log())
    code, shown, note = command("decide", own.path, "--from", path, "--yes")
    assert (code, DARK in shown, "--overwrite" in note) == (2, True, True)
    assert len(DecisionStore(own.path).log()) == before
    code, _, note = command("decide", own.path, "--from", path, "--overwrite", "--yes")
    assert (code, "Recorded 2 decisions" in note) == (0, True)
    decided = {task.id: task.state for task in list_tasks(own.path, [DARK, COPY, DOG])}
    assert decided == {
        DARK: ("owl", "drop"), COPY: ("owl", "undecided"), DOG: ("cat", "undecided"),
    }  # fmt: skip


@pytest.mark.parametrize("tool", TOOLS)
def test_a_new_class_of_a_dropped_picture_does_not_bring_it_back(
    own: audit.Run, tool: str, tmp_path: Path
) -> None:
    own.decide([DARK], "drop")
    export_review(own.path, tmp_path / "out", tool)
    path = TOOLS[tool](tmp_path / "out", {DARK: {"class": "dog"}})
    DecisionStore(own.path).record(read_review(own.path, path).entries)
    assert [task.state for task in list_tasks(own.path, [DARK])] == [("dog", "drop")]


@pytest.mark.parametrize("tool", TOOLS)
def test_a_class_that_the_run_does_not_have_is_refused(
    own: audit.Run, tool: str, tmp_path: Path, command: Command
) -> None:
    export_review(own.path, tmp_path / "out", tool)
    path = TOOLS[tool](tmp_path / "out", {DARK: {"class": "catt"}})
    code, _, said = command("decide", own.path, "--from", path, "--yes")
    assert (code, "no sample of this run has the class 'catt'" in said.lower()) == (2, True)
    assert ("nearest is 'cat'" in said, DecisionStore(own.path).log()) == (True, [])
    assert command("decide", own.path, "--from", path, "--yes", "--new-name")[0] == 0
    # as decided it is a class of the run
    assert command("decide", own.path, COPY, "--as", "relabel:catt")[0] == 0


def test_a_file_without_the_exported_state_conflicts_with_every_decision(
    own: audit.Run, tmp_path: Path
) -> None:
    own.decide([DARK], "relabel:dog")
    export_review(own.path, tmp_path / "out", "cvat")
    path = change_cvat(tmp_path / "out", {DARK: {"class": "owl"}, COPY: {"class": "owl"}})
    path.write_text(path.read_text("utf-8").replace('"exported_class"', '"other"'), "utf-8")
    review = read_review(own.path, path)
    assert [entry.subject for entry in review.entries] == [COPY]
    assert [line.split(":")[0] for line in review.conflicts] == [DARK]
