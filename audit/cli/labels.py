"""`audit labels`: parse, one call into the library, format. `audit.cli.main` mounts it."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from audit.cli import terminal
from audit.errors import UsageError
from audit.printable import visible


def labels_command(
    run: Annotated[Path, typer.Argument(help="Run directory, as made by `audit scan`.")],
    draw: Annotated[
        int | None, typer.Option("--draw", help="Draw so many labels at random, to review.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="CSV to write what was drawn to.")
    ] = None,
    reviewed: Annotated[
        Path | None, typer.Option("--reviewed", help="That CSV, with yes or no under `wrong`.")
    ] = None,
    seed: Annotated[
        int, typer.Option("--seed", min=0, help="Another seed draws other labels.")
    ] = 0,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON document on stdout.")
    ] = False,
) -> None:
    """Measure how many labels are wrong: draw some at random, review them, read the interval."""
    from audit.review.label_sample import draw_labels, estimate_wrong, write_drawn

    if (draw is None) == (reviewed is None) or (draw is None) != (out is None):
        raise UsageError(
            "Give --draw N --out F.csv to draw labels, or --reviewed F.csv once they are reviewed."
        )
    if reviewed is not None:
        found = estimate_wrong(run, reviewed)
        text = json.dumps(asdict(found)) if as_json else visible(found.sentence())
    else:
        assert draw is not None
        assert out is not None
        write_drawn(draw_labels(run, draw, seed), out)
        text = json.dumps({"drawn": draw, "path": str(out)}) if as_json else visible(
            f"{draw:,} labels drawn into {out}: write yes or no under `wrong`, then "
            f"`audit labels {run} --reviewed {out}`."
        )  # fmt: skip
    terminal.write_parts([text, "\n"])
