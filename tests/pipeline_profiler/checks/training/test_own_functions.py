"""The mode of the model after an evaluation, of functions in a file of the user."""

from importlib import import_module
from pathlib import Path
from textwrap import indent

import pytest

from pipeline_profiler.checks.check import Judgement
from pipeline_profiler.checks.training_subject import TrainingSubject
from tests.pipeline_profiler.checks.conftest import judged
from tests.pipeline_profiler.checks.toys import toy_training

STEP = """
def train_step(model, batch, loss, optimizer):
    BEFORE
    optimizer.zero_grad()
    value = loss(model(batch[0]), batch[1])
    value.backward()
    optimizer.step()
    return value
"""
EVALUATE = """
def evaluate(model, loader):
    model.eval()
    hits = sum(float((model(x).argmax(1) == y).sum()) for x, y in loader)
    AFTER
    return hits
"""
LOOP = """
def main(model, loader):
    for epoch in range(9):
        model.train()
        evaluate(model, loader)
"""
LOCAL = f"""
def make():
{indent(STEP + EVALUATE, "    ")}
    return train_step, evaluate
train_step, evaluate = make()
"""
TEXTS = {
    "never": (STEP + EVALUATE + "# model.train()", Judgement.FAIL),
    "loop": (STEP + EVALUATE + LOOP, Judgement.INCONCLUSIVE),
    "local": (LOCAL + LOOP, Judgement.INCONCLUSIVE),
    "evaluate": (EVALUATE, Judgement.INCONCLUSIVE),
    "in step": (STEP.replace("BEFORE", "model.train()") + EVALUATE, Judgement.PASS),
    "restored": (STEP + EVALUATE.replace("AFTER", "model.train(True)"), Judgement.PASS),
}


@pytest.mark.parametrize(("text", "judgement"), TEXTS.values(), ids=TEXTS)
def test_an_evaluation_that_leaves_eval_mode_is_no_passed_check(
    text: str, judgement: Judgement, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = f"factories_{abs(hash(text))}"
    (tmp_path / f"{name}.py").write_text(text.replace("BEFORE", "pass").replace("AFTER", "pass"))
    monkeypatch.syspath_prepend(tmp_path)
    module = import_module(name)
    own = {part: getattr(module, part, None) for part in ("train_step", "evaluate")}
    answer = judged("TRAIN009", TrainingSubject(lambda: toy_training(**own))).answer
    assert answer.judgement is judgement, answer.sentence
    assert ("eval mode" in answer.sentence) == (judgement is not Judgement.PASS)
