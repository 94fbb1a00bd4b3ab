"""Tasks of CVAT, out and back: "CVAT for images 1.1", one tag a picture with attributes.

As documented at docs.cvat.ai, XML annotation format, version 1.1. Everything lies in the attributes
of the tag `audit` (class, verdict, findings, sample, content), which CVAT keeps; a picture is
named by its path below the dataset, as CVAT names frames of a shared folder or an archive.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any
from xml.sax.saxutils import escape, quoteattr

from audit.annotations.xml_objects import Node, XmlError, parse_xml
from audit.errors import UsageError
from audit.printable import visible
from audit.review.review_tasks import NO_CLASS, VERDICTS, Answer, ReviewTask, ToolAnswers

TAG = "audit"
CLASS, VERDICT, SAID = "class", "verdict", "findings"
SAMPLE, CONTENT, PRINTS = "sample", "content", "fingerprints"


def cvat_document(tasks: Sequence[ReviewTask], classes: Sequence[str]) -> str:
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


def cvat_labels(classes: Sequence[str]) -> str:
    """Return the labels of the task for CVAT's raw constructor, as JSON."""
    label = {"name": TAG, "type": "tag", "attributes": _attributes(classes)}
    return json.dumps([label], ensure_ascii=False, indent=1) + "\n"


def _attributes(classes: Sequence[str]) -> list[dict[str, Any]]:
    kinds = {
        CLASS: ("select", [NO_CLASS, *classes]), VERDICT: ("select", list(VERDICTS)),
        SAID: ("text", [""]), SAMPLE: ("text", [""]), CONTENT: ("text", [""]),
        PRINTS: ("text", [""]),
    }  # fmt: skip
    return [
        {"name": name, "mutable": False, "input_type": kind, "values": values}
        for name, (kind, values) in kinds.items()
    ]


def _image(number: int, task: ReviewTask) -> str:
    values = {
        CLASS: task.label or NO_CLASS, VERDICT: task.verdict, SAID: "; ".join(task.said),
        SAMPLE: task.id, CONTENT: task.content_hash, PRINTS: " ".join(task.prints),
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
        raise UsageError(f"{name} is no export of CVAT: its first element is {top.name!r}.")
    found = ToolAnswers()
    if tracks := len(top.all("track")):
        found.ignore("tracks: export as CVAT for images 1.1, not for video", tracks)
    for image in top.all("image"):
        shapes = [one for one in image.inside if one.name != "tag"]
        if shapes:
            found.ignore("shapes, which are no class and no verdict", len(shapes))
        _take(image, found)
    return found


def _take(image: Node, found: ToolAnswers) -> None:
    tags = [tag for tag in image.all("tag") if tag.attributes.get("label") == TAG]
    if other := len(image.all("tag")) - len(tags):
        found.ignore(f"tags other than {TAG}", other)
    if len(tags) != 1:
        found.ignore(f"pictures without their one tag {TAG}")
        return
    values = {one.attributes.get("name", ""): one.text for one in tags[0].all("attribute")}
    if not values.get(SAMPLE):
        found.ignore(f"tags {TAG} without a sample")
        return
    found.answers.append(
        Answer(
            values[SAMPLE],
            values.get(CONTENT, ""),
            values.get(CLASS),
            values.get(VERDICT),
            values.get(PRINTS, "").split(),
        )
    )
