"""The mode of the model after an evaluation, of functions in a file of the user."""

from importlib import import_module
from pathlib import Path
from textwrap import indent
from typing import Any

import pytest

from pipeline_profiler.checks.check import Judgement
from pipeline_profiler.checks.loop_facts import modes_of
from pipeline_profiler.checks.training_subject import TrainingSubject
from tests.pipeline_profiler.checks.conftest import judged
from tests.pipeline_profiler.checks.toys import toy_training

torch = pytest.importorskip("torch")
nn = torch.nn

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
PLAIN = nn.Sequential(nn.Conv2d(3, 4, 8), nn.Flatten(), nn.Linear(4, 4))


@pytest.mark.parametrize(
    ("text", "parts", "judgement"),
    [
        (STEP + EVALUATE, {}, Judgement.FAIL),
        (STEP + EVALUATE + "# model.train()", {}, Judgement.FAIL),
        (STEP + EVALUATE + LOOP, {}, Judgement.INCONCLUSIVE),
        (LOCAL + LOOP, {}, Judgement.INCONCLUSIVE),
        (EVALUATE, {}, Judgement.INCONCLUSIVE),
        (STEP, {}, Judgement.PASS),
        (STEP.replace("BEFORE", "model.train()") + EVALUATE, {}, Judgement.PASS),
        (STEP + EVALUATE.replace("AFTER", "model.train(True)"), {}, Judgement.PASS),
        (STEP + EVALUATE, {"model": PLAIN}, Judgement.PASS),
    ],
    ids=[
        "never",
        "in a comment",
        "loop",
        "local",
        "evaluate",
        "step",
        "in step",
        "restored",
        "no mode",
    ],
)
def test_an_evaluation_that_leaves_eval_mode_is_no_passed_check(
    text: str, parts: dict[str, Any], judgement: Judgement, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    name = f"factories_{abs(hash(text))}"
    (tmp_path / f"{name}.py").write_text(text.replace("BEFORE", "pass").replace("AFTER", "pass"))
    monkeypatch.syspath_prepend(tmp_path)
    module = import_module(name)
    own = {part: getattr(module, part, None) for part in ("train_step", "evaluate")}
    answer = judged("TRAIN009", TrainingSubject(lambda: toy_training(**parts, **own))).answer
    assert answer.judgement is judgement, answer.sentence
    assert ("eval mode" in answer.sentence) == (judgement is not Judgement.PASS)


def test_modules_that_depend_on_the_mode_are_known_by_kind_and_by_their_rate() -> None:
    model = nn.ModuleDict(
        {
            "drop": nn.Dropout(0.5),
            "rnn": nn.LSTM(2, 2, 2, dropout=0.5),
            "attention": nn.MultiheadAttention(4, 2, dropout=0.1),
            "off": nn.Dropout(0.0),
            "plain": nn.GRU(2, 2),
            "norm": nn.LayerNorm(2),
        }
    )
    assert modes_of(model) == {"drop": True, "rnn": True, "attention": True}
    model["rnn"].eval()
    assert not modes_of(model)["rnn"]
