"""Export findings and decisions as tasks of a labelling tool, and read its answers as decisions.

A task carries the sample, the hash of its content, and class and verdict at the export. Only what
differs from these becomes a decision; if the run differs too, the answer is a conflict.
Label Studio: JSON of tasks (labelstud.io/guide/task_format), with local files below `/`.
CVAT: "CVAT for images 1.1" (docs.cvat.ai), one tag `audit` an image, all values in its attributes.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote
from xml.sax.saxutils import escape, quoteattr

from audit.annotations.voc import XmlError, parse_xml
from audit.decisions.decisions import finding_entries, known_names, sample_entries
from audit.decisions.store import Entry
from audit.errors import UsageError
from audit.exports.annotation_export import open_stage
from audit.records import Action
from audit.results.export_tables import read_review_rows
from audit.results.results import open_results
from audit.sources.paths import path_of
from dataset_preflight.foundation.files import read_regular
from dataset_preflight.foundation.terminal import visible

UNDECIDED = "undecided"
VERDICTS = (UNDECIDED, "keep", "drop", "false-positive")
NO_CLASS = "(no class)"

State = tuple[str, str]  # the class, or NO_CLASS, and the verdict of a picture


@dataclass(frozen=True, slots=True)
class ReviewTask:
    """A picture to look at: what is said of it and what was decided; `prints` are open findings."""

    id: str
    uri: str
    content_hash: str
    width: int | None
    height: int | None
    label: str | None
    dropped: bool
    verb: str | None  # of the decision about the picture that holds
    prints: Sequence[str]
    said: Sequence[str]

    @property
    def verdict(self) -> str:
        """The verdict as decided."""
        if self.dropped:
            return "drop"
        return "keep" if self.verb == Action.KEEP.value else UNDECIDED

    @property
    def state(self) -> State:
        """The class and the verdict as decided."""
        return self.label or NO_CLASS, self.verdict


@dataclass(frozen=True, slots=True)
class Answer:
    """What a tool's export says of one picture; None: it does not say.

    `exported`: the state when the file was made. `prints`: the findings that people were shown;
    others are not theirs to waive.
    """

    sample: str
    content_hash: str
    label: str | None
    verdict: str | None
    exported: State | None
    prints: Sequence[str] = ()


@dataclass(slots=True)
class ToolAnswers:
    """What was read of a file; `ignored` counts, in words, what was not understood."""

    answers: list[Answer] = field(default_factory=list)
    ignored: Counter[str] = field(default_factory=Counter)


@dataclass(frozen=True, slots=True)
class Review:
    """The decisions that a file asks for, and what of it was not understood.

    `conflicts`: a line for each picture that people changed, and that was decided since the export.
    """

    entries: list[Entry]
    read: int
    unchanged: int
    conflicts: list[str]
    ignored: Mapping[str, int]


def list_tasks(
    run: Path, samples: Sequence[str] | None = None, codes: Sequence[str] = ()
) -> list[ReviewTask]:
    """Return the pictures with an open finding or a decision, by id; or these `samples`.

    `codes`, or beginnings of them, choose the findings, and only their pictures: default all.
    """
    rows = read_review_rows(open_results(run), samples, codes)
    return [ReviewTask(*row) for row in rows.iter_rows()]


def compare_answers(
    run: Path, found: ToolAnswers, name: str, note: str = "", by: str | None = None,
    *, overwrite: bool = False,
) -> Review:  # fmt: skip
    """Return what the answers change; raises UsageError for a file of another dataset.

    `overwrite`: a conflict becomes a decision like any other answer.
    """
    tasks = {task.id: task for task in list_tasks(run, [a.sample for a in found.answers])}
    known = []
    for answer in found.answers:
        task = tasks.get(answer.sample)
        if task is None:
            found.ignored["images that are not in the run"] += 1
        elif task.content_hash != answer.content_hash:
            found.ignored["images that changed after the export"] += 1
        else:
            known.append((task, answer))
    if found.answers and not known:
        raise UsageError(
            f"{name} was made from another dataset: none of its {len(found.answers):,} images is "
            f"in {run}, by id and content."
        )
    wanted, unchanged, conflicts = _group(known, found, overwrite=overwrite)
    note = note or f"from {name}"
    entries: list[Entry] = []
    # a keep or drop comes last: it does not take a new label back
    for (verb, value), subjects in sorted(
        wanted.items(), key=lambda one: (one[0][0] is not Action.RELABEL, str(one[0]))
    ):
        if verb is Action.FALSE_POSITIVE:
            entries += finding_entries(run, list(dict.fromkeys(subjects)), verb, None, note, by)
        else:
            entries += sample_entries(run, subjects, verb, value, note, by)
    return Review(entries, len(found.answers), unchanged, conflicts, found.ignored)


Wanted = dict[tuple[Action, str | None], list[str]]


def _group(
    known: Iterable[tuple[ReviewTask, Answer]], found: ToolAnswers, *, overwrite: bool
) -> tuple[Wanted, int, list[str]]:
    """Return samples, or fingerprints, by verb and value; how many pictures stay; conflicts."""
    wanted: Wanted = {}
    unchanged = 0
    conflicts = []
    for task, answer in known:
        changes = _changes(task, answer, found)
        exported = answer.exported
        is_decided_since = task.verb is not None if exported is None else exported != task.state
        if changes and is_decided_since and not overwrite:
            verbs = ", ".join(f"{verb}:{value}" if value else str(verb) for verb, value in changes)
            before = "is not in the file" if exported is None else f"is {' and '.join(exported)}"
            now = " and ".join(task.state)
            conflicts.append(f"{task.id}: {verbs}; the exported state {before}, now it is {now}")
            continue
        for change, subjects in changes.items():
            wanted.setdefault(change, []).extend(subjects)
        unchanged += not changes
    return wanted, unchanged, conflicts


def _changes(task: ReviewTask, answer: Answer, found: ToolAnswers) -> Wanted:
    """Return what an answer changes of its picture: neither as exported nor as decided now."""
    changes: Wanted = {}
    label, verdict = answer.label or NO_CLASS, answer.verdict or task.verdict
    known_labels, known_verdicts = zip(answer.exported or task.state, task.state, strict=True)
    if label not in (NO_CLASS, *known_labels):
        changes[Action.RELABEL, label] = [task.id]
    shown = [one for one in task.prints if one in answer.prints]
    if verdict == "false-positive" and shown:
        changes[Action.FALSE_POSITIVE, None] = shown
    elif verdict in ("keep", "drop") and (changes or verdict not in known_verdicts):
        changes[Action(verdict), None] = [task.id]  # a new label alone would take it back
    elif verdict not in VERDICTS:
        found.ignored[f"unknown verdicts, such as {verdict!r}"] += 1
    return changes


TOOLS = ("label-studio", "cvat")


def export_review(
    run: Path, out: Path, tool: str, codes: Sequence[str] = (), *, replace: bool = False
) -> dict[Path, int]:
    """Write open findings and decisions for a tool into a folder; returns tasks by file.

    `codes` choose as in `list_tasks`. Raises UsageError where there is nothing to look at, and
    where a file is in the way.
    """
    with open_stage(run, out, tool, replace=replace) as stage:
        tasks, classes = list_tasks(run, codes=codes), sorted(known_names(run, Action.RELABEL))
        if not tasks:
            what = f"open finding of {', '.join(codes)}" if codes else "finding and no decision"
            raise UsageError(f"{run} has no {what} about an image, so there is nothing to review.")
        if tool == "cvat":
            # as CVAT's raw constructor takes it
            label = {"name": TAG, "type": "tag", "attributes": _attributes(classes)}
            files = {
                "annotations.xml": _cvat_document(tasks, classes), "labels.json": _json([label]),
            }  # fmt: skip
        else:
            made = _json(list(map(_task, tasks)))
            files = {"tasks.json": made, "config.xml": _studio_config(classes)}
        for name, text in files.items():
            stage.write(name, text, len(tasks))
    return {out / next(iter(files)): len(tasks)}


def _json(content: list[Any]) -> str:
    return json.dumps(content, ensure_ascii=False, indent=1) + "\n"


def read_review(
    run: Path, path: Path, note: str = "", by: str | None = None, *, overwrite: bool = False
) -> Review:
    """Return the decisions that a tool's export asks for; .json is Label Studio's, .xml CVAT's.

    `overwrite`: answers that conflict with decisions made since the export count too.
    Raises UsageError for a file that is neither, or of another dataset.
    """
    try:
        raw = read_regular(path)
    except OSError as error:
        raise UsageError(f"{path} cannot be read ({error.strerror or error}).") from None
    if path.suffix.lower() == ".xml":
        found = read_cvat(raw, path.name)
    elif path.suffix.lower() == ".json":
        found = read_studio(raw.decode("utf-8", errors="replace"), path.name)
    else:
        raise UsageError(
            f"{path} is neither .json of Label Studio nor .xml of CVAT for images 1.1: unpack an "
            "archive first."
        )
    if not found.answers:
        reasons = "; ".join(f"{n:,} {reason}" for reason, n in found.ignored.items())
        raise UsageError(f"{path} contains no decision: {reasons or 'it is empty'}.")
    return compare_answers(run, found, path.name, note, by, overwrite=overwrite)


CLASS, VERDICT = "class", "verdict"
SAMPLE, CONTENT, PRINTS = "sample_id", "content_hash", "fingerprints"
EXPORTED = "exported"


def _studio_config(classes: Sequence[str]) -> str:
    choices = {CLASS: classes or [NO_CLASS], VERDICT: VERDICTS}
    groups = "".join(
        f'  <Choices name="{name}" toName="image" choice="single">\n'
        + "".join(f"    <Choice value={quoteattr(one)}/>\n" for one in values)
        + "  </Choices>\n"
        for name, values in choices.items()
    )
    return (
        '<View>\n  <Image name="image" value="$image"/>\n  <Text name="said" value="$findings"/>\n'
        f"{groups}</View>\n"
    )


def _task(task: ReviewTask) -> dict[str, Any]:
    path = path_of(task.uri)
    image = task.uri if path is None else f"/data/local-files/?d={quote(path.lstrip('/'))}"
    data = {
        "image": image, SAMPLE: task.id, CONTENT: task.content_hash, EXPORTED: list(task.state),
        "findings": "\n".join(task.said), PRINTS: list(task.prints),
    }  # fmt: skip
    result = [_choice(VERDICT, task.verdict)]
    if task.label is not None:
        result.append(_choice(CLASS, task.label))
    if task.verb is not None:
        return {"data": data, "annotations": [{"result": result}]}
    return {"data": data, "predictions": [{"model_version": "audit", "result": result}]}


def _choice(name: str, value: str) -> dict[str, Any]:
    return {
        "id": name, "from_name": name, "to_name": "image", "type": "choices",
        "value": {"choices": [value]},
    }  # fmt: skip


def read_studio(text: str, name: str) -> ToolAnswers:
    """Return what an export in JSON says of each picture; raises UsageError where it is none."""
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{name} cannot be read as JSON ({error}): export it again.") from None
    if not isinstance(document, list) or not all(isinstance(task, dict) for task in document):
        raise UsageError(
            f"{name} is not a list of tasks: export JSON, not JSON-MIN, from the tool."
        )
    found = ToolAnswers()
    for task in document:
        data = task.get("data")
        if not isinstance(data, dict) or not isinstance(data.get(SAMPLE), str):
            found.ignored[f"tasks without {SAMPLE}, which `audit export` did not write"] += 1
            continue
        _take(task, data, found)
    return found


def _take(task: dict[str, Any], data: dict[str, Any], found: ToolAnswers) -> None:
    given = [one for one in _dicts(task.get("annotations")) if not one.get("was_cancelled")]
    if not given:
        found.ignored["tasks without an annotation"] += 1
        return
    said = []
    for annotation in given:
        values: dict[str, str] = {}
        for result in _dicts(annotation.get("result")):
            value = result.get("value")
            chosen = value.get("choices") if isinstance(value, dict) else None
            group = result.get("from_name")
            if group not in (CLASS, VERDICT) or not isinstance(chosen, list) or len(chosen) != 1:
                found.ignored["regions and answers that are neither a class nor a verdict"] += 1
            else:
                values[group] = str(chosen[0])
        said.append(values)
    if any(values != said[0] for values in said):
        found.ignored["images with different answers of two people"] += 1
        return
    shown = data.get(PRINTS)
    prints = list(map(str, shown)) if isinstance(shown, list) else []
    content, (label, verdict) = str(data.get(CONTENT)), map(said[0].get, (CLASS, VERDICT))
    state = data.get(EXPORTED)
    exported = (str(state[0]), str(state[1])) if isinstance(state, list) and state[1:] else None
    found.answers.append(Answer(data[SAMPLE], content, label, verdict, exported, prints))


def _dicts(value: object) -> list[dict[str, Any]]:
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []


TAG = "audit"
SAID = "findings"
CVAT_SAMPLE, CVAT_CONTENT, CVAT_PRINTS = "sample", "content", "fingerprints"
CVAT_EXPORTED = ("exported_class", "exported_verdict")


def _cvat_document(tasks: Sequence[ReviewTask], classes: Sequence[str]) -> str:
    """Return the annotations of a task whose frames are these pictures."""
    attributes = "".join(
        f"<attribute><name>{a['name']}</name><mutable>False</mutable>"
        f"<input_type>{a['input_type']}</input_type>"
        f"<default_value>{_text(a['values'][0])}</default_value>"
        f"<values>{_text(chr(10).join(a['values']))}</values></attribute>"
        for a in _attributes(classes)
    )
    head = (
        '<?xml version="1.0" encoding="utf-8"?>\n<annotations>\n<version>1.1</version>\n'
        f"<meta><task><name>audit</name><size>{len(tasks)}</size><mode>annotation</mode>"
        f"<labels><label><name>{TAG}</name><type>tag</type><attributes>{attributes}</attributes>"
        "</label></labels></task></meta>\n"
    )
    return head + "".join(map(_image, range(len(tasks)), tasks)) + "</annotations>\n"


def _attributes(classes: Sequence[str]) -> list[dict[str, Any]]:
    kinds = {
        CLASS: ("select", [NO_CLASS, *classes]), VERDICT: ("select", list(VERDICTS)),
        SAID: ("text", [""]), CVAT_SAMPLE: ("text", [""]), CVAT_CONTENT: ("text", [""]),
        CVAT_PRINTS: ("text", [""]), **dict.fromkeys(CVAT_EXPORTED, ("text", [""])),
    }  # fmt: skip
    return [
        {"name": name, "mutable": False, "input_type": kind, "values": values}
        for name, (kind, values) in kinds.items()
    ]


def _image(number: int, task: ReviewTask) -> str:
    values = {
        **dict(zip((CLASS, VERDICT, *CVAT_EXPORTED), task.state * 2, strict=True)),
        CVAT_SAMPLE: task.id, CVAT_CONTENT: task.content_hash, CVAT_PRINTS: " ".join(task.prints),
        SAID: "; ".join(task.said),
    }  # fmt: skip
    inside = "".join(f'<attribute name="{k}">{_text(v)}</attribute>' for k, v in values.items())
    return (
        f'<image id="{number}" name={quoteattr(visible(task.id))} width="{task.width or 0}" '
        f'height="{task.height or 0}">'
        f'<tag label="{TAG}" source="auto">{inside}</tag></image>\n'
    )


def _text(value: str) -> str:
    """Return text that XML can hold: control characters are written as they are shown."""
    return escape("\n".join(map(visible, value.split("\n"))))


def read_cvat(raw: bytes, name: str) -> ToolAnswers:
    """Return what an export says of each picture; raises UsageError where it is none."""
    try:
        top = parse_xml(raw)
    except XmlError as error:
        raise UsageError(f"{name} cannot be read, line {error.line}: {error}.") from None
    if top.name != "annotations":
        raise UsageError(f"{name} is not an export of CVAT: its first element is {top.name!r}.")
    found = ToolAnswers()
    if tracks := len(top.all("track")):
        found.ignored["tracks: export as CVAT for images 1.1, not for video"] += tracks
    for image in top.all("image"):
        if shapes := sum(one.name != "tag" for one in image.inside):
            found.ignored["shapes, which are neither a class nor a verdict"] += shapes
        tags = [tag for tag in image.all("tag") if tag.attributes.get("label") == TAG]
        if other := len(image.all("tag")) - len(tags):
            found.ignored[f"tags other than {TAG}"] += other
        if len(tags) != 1:
            found.ignored[f"images without their one tag {TAG}"] += 1
            continue
        values = {one.attributes.get("name", ""): one.text for one in tags[0].all("attribute")}
        if not values.get(CVAT_SAMPLE):
            found.ignored[f"tags {TAG} without a sample"] += 1
            continue
        label, verdict = (values.get(name, "") for name in CVAT_EXPORTED)
        content, prints = values.get(CVAT_CONTENT, ""), values.get(CVAT_PRINTS, "").split()
        exported = (label, verdict) if label and verdict else None
        given = (values.get(CLASS), values.get(VERDICT))
        found.answers.append(Answer(values[CVAT_SAMPLE], content, *given, exported, prints))
    return found
