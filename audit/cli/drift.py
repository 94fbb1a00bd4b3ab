"""`audit drift`: parse, one call into the library, format. `audit.cli.main` mounts it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from audit.cli import terminal
from audit.cli.exit_codes import ExitCode
from audit.printable import visible


def drift_command(
    run: Annotated[Path, typer.Argument(help="Run directory, as made by `audit scan`.")],
    reference: Annotated[Path, typer.Argument(help="Run to compare it with.")],
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON document on stdout.")
    ] = False,
    fail: Annotated[bool, typer.Option("--fail", help="Exit with 1 if anything differs.")] = False,
) -> None:
    """Tell how the classes and pictures of RUN differ from those of REFERENCE; reads no image."""
    from audit.run_drift import find_drift

    drift = find_drift(run, reference)
    if as_json:
        terminal.write_parts([drift.document(), "\n"])
    else:
        lines = [f"{f.severity.value:<8} {f.code}  {f.message}" for f in drift.findings]
        for finding in drift.findings:
            lines += [f"  {sample}" for sample in finding.sample_ids]
        lines = lines or [f"{run} does not differ from {reference} in what was compared."]
        terminal.write_text("\n".join(map(visible, [*lines, *drift.completeness])))
    if fail and drift.findings:
        raise typer.Exit(ExitCode.FINDINGS)
