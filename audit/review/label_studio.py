"""Tasks of Label Studio, out and back: its JSON of tasks, with `predictions` or `annotations`.

As documented at labelstud.io/guide/task_format and /guide/predictions. What was decided is an
annotation, what is open a prediction, which people accept or change. Pictures of a disk are
named for local storage, `/data/local-files/?d=PATH` below `LOCAL_FILES_DOCUMENT_ROOT` (here `/`).
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any
from urllib.parse import quote
from xml.sax.saxutils import quoteattr

from audit.errors import UsageError
from audit.review.review_tasks import NO_CLASS, VERDICTS, Answer, ReviewTask, ToolAnswers
from audit.sources.paths import path_of

CLASS, VERDICT = "class", "verdict"
SAMPLE, CONTENT, PRINTS = "sample_id", "content_hash", "fingerprints"


def studio_tasks(tasks: Sequence[ReviewTask]) -> str:
    """Return the tasks as JSON."""
    return json.dumps([_task(task) for task in tasks], ensure_ascii=False, indent=1) + "\n"


def studio_config(classes: Sequence[str]) -> str:
    """Return the labelling interface of a project that takes these tasks."""
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
        "image": image, SAMPLE: task.id, CONTENT: task.content_hash, "label": task.label,
        "findings": "\n".join(task.said), PRINTS: list(task.prints),
    }  # fmt: skip
    result = [_choice(VERDICT, task.verdict)]
    if task.label is not None:
        result.append(_choice(CLASS, task.label))
    if task.decided:
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
        raise UsageError(f"{name} is no list of tasks: export JSON, not JSON-MIN, from the tool.")
    found = ToolAnswers()
    for task in document:
        data = task.get("data")
        if not isinstance(data, dict) or not isinstance(data.get(SAMPLE), str):
            found.ignore(f"tasks without {SAMPLE}, which `audit export` did not make")
            continue
        _take(task, data, found)
    return found


def _take(task: dict[str, Any], data: dict[str, Any], found: ToolAnswers) -> None:
    given = [one for one in _dicts(task.get("annotations")) if not one.get("was_cancelled")]
    if not given:
        found.ignore("tasks that nobody has annotated")
        return
    said = []
    for annotation in given:
        values: dict[str, str] = {}
        for result in _dicts(annotation.get("result")):
            value = result.get("value")
            chosen = value.get("choices") if isinstance(value, dict) else None
            group = result.get("from_name")
            if group not in (CLASS, VERDICT) or not isinstance(chosen, list) or len(chosen) != 1:
                found.ignore("regions and answers that are no class and no verdict")
            else:
                values[group] = str(chosen[0])
        said.append(values)
    if any(values != said[0] for values in said):
        found.ignore("pictures of which two people said different things")
        return
    found.answers.append(
        Answer(
            data[SAMPLE],
            str(data.get(CONTENT)),
            said[0].get(CLASS),
            said[0].get(VERDICT),
            [str(one) for one in _list(data.get(PRINTS))],
        )
    )


def _dicts(value: object) -> list[dict[str, Any]]:
    return [one for one in _list(value) if isinstance(one, dict)]


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []
