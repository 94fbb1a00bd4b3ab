"""Drift between runs: what a dataset has become since, or beside, another one that was scanned.

The two runs become two splits of one dataset in memory, with the reference as training, and the
checks that compare splits run on them: DIST003, DIST006, DIST007, DIST011.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from audit.checking.runner import configure_checks
from audit.picture.features import FEATURE_ROW
from audit.records import Finding
from audit.results.results import open_results
from audit.results.run_findings import read_feature_tables
from audit.run.store import Store

SCHEMA = "audit-drift/1"
CHECKS = ("DIST003", "DIST006", "DIST007", "DIST011")
HERE, THERE = "run", "reference"


@dataclass(frozen=True, slots=True)
class RunDrift:
    """What differs between a run and its reference, and what was compared, in sentences."""

    run: Path
    reference: Path
    findings: Sequence[Finding]
    completeness: Sequence[str]

    def document(self) -> str:
        """Return it as one JSON document."""
        return json.dumps(
            {
                "schema": SCHEMA,
                "run": str(self.run),
                "reference": str(self.reference),
                "findings": [
                    {
                        "code": f.code, "severity": f.severity.value, "subject": f.subject,
                        "sample_ids": list(f.sample_ids), "message": f.message,
                        "evidence": dict(f.evidence), "fingerprint": f.fingerprint,
                    }
                    for f in self.findings
                ],
                "completeness": list(self.completeness),
            },
            ensure_ascii=False,
            indent=1,
        )  # fmt: skip


def find_drift(run: Path, reference: Path) -> RunDrift:
    """Compare the pictures and classes of a run with those of a reference.

    Raises RunError where there is no run, UsageError where one lacks columns of the other.
    """
    findings: list[Finding] = []
    sentences = []
    thresholds = {code: {"train_splits": (THERE,)} for code in CHECKS}
    with Store.memory() as store:
        store.create_measurements(FEATURE_ROW)
        for path, name, prefix in ((reference, THERE, f"{THERE}:"), (run, HERE, "")):
            # an image of both runs is in one group
            known = store.query("SELECT pixel_hash FROM groups")
            for table, rows in read_feature_tables(open_results(path), name, prefix).items():
                of_groups = table == "groups"
                store.append(table, rows.join(known, "pixel_hash", "anti") if of_groups else rows)
        for config in configure_checks(CHECKS, thresholds):
            findings += config.check.find(store, config.params)
            sentences.append(config.check.completeness(store, config.params))
    return RunDrift(run, reference, findings, [s for s in sentences if s])
