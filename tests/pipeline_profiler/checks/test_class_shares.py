"""What LOAD026 says of two loaders: an overlap of shares, not of classes."""

from __future__ import annotations

import pytest

from pipeline_profiler.checks.loader.contents import EvaluationOfOthers
from tests.pipeline_profiler.checks.examples.loader.contents import last_held_out

pytestmark = pytest.mark.slow


def test_the_overlap_is_one_of_shares() -> None:
    answer = EvaluationOfOthers().run(last_held_out(False, kept=1))
    assert answer.sentence.startswith("The class shares of training and evaluation overlap by ")
    assert "classes in common" not in answer.sentence
