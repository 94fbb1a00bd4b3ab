"""The files of a labelling tool: written into a folder, and read back as decisions."""

from __future__ import annotations

from pathlib import Path

from audit.errors import UsageError
from audit.review.cvat import cvat_document, cvat_labels, read_cvat
from audit.review.export_folder import SCHEMA, move_to_place, open_stage
from audit.review.label_studio import read_studio, studio_config, studio_tasks
from audit.review.ledger import Ledger
from audit.review.review_tasks import Review, compare_answers, decided_classes, list_tasks
from audit.run import generations

TOOLS = ("label-studio", "cvat")


def export_review(run: Path, out: Path, tool: str, *, replace: bool = False) -> dict[Path, int]:
    """Write open findings and decisions for a tool into a folder; returns tasks by file.

    Raises UsageError where there is nothing to look at, and where a file is in the way.
    """
    if out.resolve().is_relative_to(run.resolve()):
        raise UsageError(f"{out} is inside the run: choose a folder outside of it.")
    generation, revision = generations.require(run), Ledger(run).revision()
    tasks, classes = list_tasks(run), decided_classes(run)
    if not tasks:
        raise UsageError(f"{run} has no finding and no decision about a picture: nothing to show.")
    if tool == "cvat":
        files = {"annotations.xml": cvat_document(tasks, classes), "labels.json": ""}
        files["labels.json"] = cvat_labels(classes)
    else:
        files = {"tasks.json": studio_tasks(tasks), "config.xml": studio_config(classes)}
    with open_stage(out) as stage:
        for name, text in files.items():
            (stage / name).write_text(text, encoding="utf-8")
        record: dict[str, object] = {
            "schema": SCHEMA, "run": str(run), "generation": generation.path.name,
            "decisions": revision, "format": tool, "files": dict.fromkeys(files, len(tasks)),
        }  # fmt: skip
        move_to_place(stage, out, record, replace=replace)
    return {out / next(iter(files)): len(tasks)}


def read_review(run: Path, path: Path, note: str = "", by: str | None = None) -> Review:
    """Return the decisions that a tool's export asks for; .json is Label Studio's, .xml CVAT's.

    Raises UsageError for a file that is neither, or of another dataset.
    """
    try:
        raw = path.read_bytes()
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
        raise UsageError(f"{path} decides nothing: {reasons or 'it is empty'}.")
    return compare_answers(run, found, path.name, note, by)
