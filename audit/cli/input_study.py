"""`audit input-study`: parse, one call into the library, format."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Annotated

import typer

from audit.cli.options import JobsOption, JsonOption, RunArgument, print_answer

if TYPE_CHECKING:
    from audit.compare.needs import PictureNeeds, Version


def input_study_command(
    run: RunArgument,
    margin: Annotated[
        float, typer.Option("--margin", help="Acceptable loss of accuracy, as a share.")
    ] = 0.02,
    images: Annotated[int, typer.Option("--images", min=1, help="Images to open, at most.")] = 2000,
    jobs: JobsOption = None,
    as_json: JsonOption = False,
) -> None:
    """Estimate the minimum input resolution, and whether colour, position and context matter."""
    from audit.compare.needs import find_needs
    from audit.machine.executors import Processes
    from audit.picture.preview import LIMITS, TIMEOUT_S
    from audit.scanning.measuring import PHASE_WORDS, Progress
    from dataset_preflight.foundation.cores import usable_cores
    from dataset_preflight.foundation.progress import ProgressBar

    workers = Processes(jobs or usable_cores(), TIMEOUT_S, LIMITS.max_memory)
    with ProgressBar(PHASE_WORDS) as bar:
        found = find_needs(
            run, workers, LIMITS, margin=margin, most=images,
            advance=lambda done, total: bar(Progress("open", done, total)),
        )  # fmt: skip
    with suppress(OSError):  # a run that may only be read has it on the screen alone
        found.keep()
    print_answer(as_json, found.document, lambda: needs_lines(found))


def needs_lines(found: PictureNeeds) -> list[str]:
    """Return what was found as lines for a terminal."""
    if found.reason:
        return [found.sentence]
    lines = [
        f"{found.pictures:,} images of {found.classes:,} classes, {found.independent:,} of them "
        "independent. A simple classifier on their embeddings has an accuracy of "
        f"{found.accuracy:.1%} (largest class: {found.largest_class:.1%}).",
        "",
        *filter(None, (found.sentence, found.spurious)),
        "",
    ]
    return [
        *lines, *map(_row, (*found.sizes, *found.versions)), "",
        f"Loss: points of accuracy against the full image at {found.base} px (95% CI, paired). A "
        f"loss below {found.margin:.1%} counts as none. Sizes above {found.base} px were not "
        "tested. A larger network may use detail that this classifier does not use.",
        "",
        "Largest variation within each class, relative to all images, and the images at both ends:",
        *(f"  {one.label}: {one.what}, {one.ratio:.2f} times: {one.low} | {one.high}"
          for one in found.varying),
    ]  # fmt: skip


def _row(version: Version) -> str:
    return (
        f"  {version.name:<30} {version.accuracy:6.1%}   loss {100 * version.loss:5.1f} "
        f"({100 * version.loss_low:.1f} to {100 * version.loss_high:.1f})   {version.verdict}"
    )
