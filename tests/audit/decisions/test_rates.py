"""The rate of errors among the first findings of a ranked list, once they are reviewed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from audit.decisions.decisions import decide_findings
from audit.decisions.label_sample import reviewed_rates
from audit.records import Action
from audit.report import collect_report
from audit.run import generations
from tests.audit.annotations.datasets import annotated_run, coco, coco_tree

pytestmark = pytest.mark.slow


def test_the_rate_has_an_interval_and_says_what_is_not_reviewed(tmp_path: Path) -> None:
    root = coco_tree(tmp_path / "data", coco(12), 12)
    results = [
        {"image_id": i + 1, "category_id": 1, "bbox": [40, 30, 9, 9], "score": 0.96 + i / 1000}
        for i in range(12)
    ]
    (tmp_path / "results.json").write_text(json.dumps(results))
    run = annotated_run(root, tmp_path / "run", tmp_path / "results.json")
    assert reviewed_rates(run) == []
    with generations.open_run(run) as store:
        prints = store.query(
            "SELECT fingerprint FROM findings WHERE code = 'BOX027' "
            "ORDER BY CAST(json_extract(evidence, '$.rank') AS INT)"
        )["fingerprint"].to_list()
    assert len(prints) == 12
    decide_findings(run, prints[:7], Action.RELABEL, "redrawn", by="anna")
    assert reviewed_rates(run) == []  # seven are too few to say anything
    decide_findings(run, prints[7:9], Action.FALSE_POSITIVE, by="anna")
    decide_findings(run, prints[9:10], Action.KEEP, by="anna")
    [said] = reviewed_rates(run)
    assert said == (
        "BOX027 overlooked-object: of 10 reviewed of the first 12, 7 were wrong, 70% (35% to 93%); "
        "2 of the first 12 are not reviewed."
    )
    assert said in collect_report(run).completeness
