"""Run the checks over a run's measurements, and publish what they find.

A findings database says what made it; where checks or thresholds are others since, or one broke,
the next scan runs them again although nothing in the dataset changed.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from audit.checking.runner import CheckConfig, checks_key, run_checks
from audit.measuring import Progress, ProgressCallback
from audit.run import generations
from audit.run.digests import find_damage
from audit.run.store import Store

IMAGES_AT_HAND = 50_000  # samples: about 25 MB in memory
FIRST_FINDINGS = "findings-0001.duckdb"


def write_findings(
    measurements: Path, target: Path, checks: Sequence[CheckConfig], progress: ProgressCallback
) -> None:
    """Write a findings database, and the key of what made it: none where a check failed.

    Without a key the next scan runs the checks again, although nothing in the dataset changed.
    """
    with Store.open(measurements) as store:
        store.keep_images_at_hand(IMAGES_AT_HAND)
        run_checks(
            store, target, checks, lambda done, total: progress(Progress("judge", done, total))
        )
    with Store.create(target) as findings:
        failed = findings.scalar("SELECT count(*) FROM failed_checks")
        key = "" if failed else checks_key(checks)
        findings.execute("CREATE TABLE IF NOT EXISTS checked_as AS SELECT ? AS key", [key])
        findings.checkpoint()


def check_again_if_needed(
    run: Path,
    generation: generations.Generation,
    checks: Sequence[CheckConfig],
    progress: ProgressCallback,
) -> None:
    """Re-check an unchanged dataset where checks or thresholds differ from the published ones.

    Findings that are damaged are made again too; the generation may be an older one, where the
    published one is damaged: then it is published.
    """
    if not find_damage(generation.findings):
        with Store.open(generation.findings) as store:
            same = store.scalar("SELECT key FROM checked_as") == checks_key(checks)
        if same:
            if generations.current(run) != generation:
                generations.make_current(run, generation)
            return
    publish_new_findings(run, generation, checks, progress)


def publish_new_findings(
    run: Path,
    generation: generations.Generation,
    checks: Sequence[CheckConfig],
    progress: ProgressCallback,
) -> None:
    """Write findings beside those that a generation has, and publish them."""
    name = generations.next_findings(generation)
    built = generation.path / f"{name}.building"
    write_findings(generation.measurements, built, checks, progress)
    generations.publish_findings(run, generation, built, name)
