"""A whole training given for a factory is refused before anything runs; real factories are not."""

from pathlib import Path

import pytest

from pipeline_profiler.cli.main import command_line
from pipeline_profiler.cli.user_code import mentioned, refuse_empty, refuse_training
from pipeline_profiler.profiling.record.errors import ProfileError

SCRIPT = """
from pathlib import Path

Path(__file__).with_name("imported").touch()

def train_one_epoch(model, loader, optimizer):
    for batch in loader:
        loss = model(batch)
        loss.backward()
        optimizer.step()

def main():
    Path(__file__).with_name("checkpoint").touch()
    train_one_epoch(None, [], None)

def train():
    for epoch in range(3):
        train_one_epoch(None, [], None)
    return 0.93, "best.pt"

if __name__ == "__main__":
    main()
"""


@pytest.fixture
def script(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    path = tmp_path / f"script_{abs(hash(request.node.name))}.py"
    path.write_text(SCRIPT)
    return path


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["check", "X:main"], "X:main returns nothing, so it was not run"),
        (
            ["check", "X:main"],
            "A whole script: pipeline-profiler check -- X --its",
        ),
        (["check", "X:train"], "X:train trains (`backward` in line 9), and the checks"),
        (["check", "X"], "X has no make_loader, make_model, make_loss, make_optimizer"),
        (["check", "X:main"], "and returns the loader, or the parts of a training."),
        (["run", "X:main"], "and returns the loader."),
        (["run", "X:train", "--step", "X:main"], "and returns the step, a function step(batch)."),
        (["precision", "--loader", "X:main"], "and returns the loader."),
        (["precision", "--step", "X:main"], "and returns the step, a function step(batch, prec"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_a_script_is_refused_before_anything_runs(
    words: list[str], said: str, script: Path, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.chdir(script.parent)
    assert command_line([word.replace("X", str(script)) for word in words]) == 2
    told = capsys.readouterr().err
    assert said.replace("X", str(script)) in " ".join(told.split())
    # importing it leaves the mark that it was imported, and what Python compiled
    made = {p.name for p in script.parent.iterdir()} - {"imported", "__pycache__"}
    assert made == {script.name}
    assert "--step" in words or not script.with_name("imported").exists()


def test_a_make_training_that_trains_is_refused_where_the_file_is_given(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "misnamed_script.py"
    path.write_text(SCRIPT.replace("def main()", "def make_training()"))
    assert command_line(["check", str(path)]) == 2
    assert "make_training returns nothing" in capsys.readouterr().err
    path.write_text(SCRIPT + "def make_model():\n    print(1)\ndef make_loader():\n    return []\n")
    assert command_line(["check", str(path)]) == 2
    assert "make_model returns nothing" in capsys.readouterr().err
    assert not path.with_name("imported").exists()


TRAINING = "for b in loader:\n        loss(b).backward()\n    "
WHOLE = {
    "nothing": "def f():\n    train()",
    "a bare return": "def f():\n    if x:\n        return\n    train()",
    "None and a number": "def f():\n    if x:\n        return None\n    return 0",
    "a value of a nested function": "def f():\n    def g():\n        return 1\n    g()",
    "either way": "if x:\n    def f():\n        a()\nelse:\n    def f():\n        b()",
    "a loop that learns": f"def f():\n    {TRAINING}return model",
    "a dict of results": f"def f():\n    {TRAINING}return {{'loss': 1, 'accuracy': 2}}",
    "a loop around its own function": (
        "def f():\n    [step(b) for b in loader]\n    return model\n"
        "def step(b):\n    again(b)\ndef again(b):\n    fabric.backward(b)\n    step(b)"
    ),
    "a trainer": "def f():\n    pl.Trainer(max_epochs=3).fit(module)\n    return module",
    "a trainer of transformers": "def f():\n    trainer.train()\n    return trainer",
    "epochs of keras": "def f():\n    model.fit(x, y, epochs=9)\n    return model",
    "arguments": "def f():\n    args = argparse.ArgumentParser().parse_args()\n    return g(args)",
}  # fmt: skip


@pytest.mark.parametrize("text", WHOLE.values(), ids=WHOLE)
def test_what_is_sure_to_train_or_to_make_nothing_is_refused(text: str, tmp_path: Path) -> None:
    path = tmp_path / "script.py"
    path.write_text(text)
    with pytest.raises(ProfileError, match=r"f (returns nothing|trains|reads)"):
        refuse_training(path, "f", "{'model'}")


def test_a_main_function_is_refused_unless_it_shows_the_parts(tmp_path: Path) -> None:
    path = tmp_path / "script.py"
    for head in ("", "@hydra.main(config_name='x')\n"):
        path.write_text(f"{head}def main():\n    return run()")
        with pytest.raises(ProfileError, match="is the main function of a script"):
            refuse_training(path, "main", "{'model'}")
    path.write_text("def main():\n    return {'model': m, 'loader': x}")
    refuse_training(path, "main", "{'model'}")


FACTORIES = {
    "a class": "class f:\n    def __init__(self):\n        self.model = 1",
    "imported": "from elsewhere import f",
    "imported under another name": "import elsewhere.make as f",
    "a lambda": "f = lambda: None",
    "a partial": "from functools import partial\ndef g(x):\n    x()\nf = partial(g, 1)",
    "decorated": "@made_by\ndef f():\n    pass",
    "replaced": "def f():\n    pass\nf = wrap(f)",
    "replaced elsewhere": "def f():\n    pass\ndef g():\n    global f\n    f = 1",
    "a generator": "def f():\n    yield 1",
    "a function that only raises": "def f():\n    raise FileNotFoundError('/no/such/folder')",
    "only a return": "def f():\n    return None",
    "one of two returns": "if x:\n    def f():\n        return g\nelse:\n    def f():\n        a()",
    "its own step": (
        "def f():\n    def step(model, batch):\n        for b in batch:\n            b.backward()\n"
        "    return make(step)\n"
    ),
    "one warm-up step": "def f():\n    loss.backward()\n    return make()",
    "modes and scalers": "def f():\n    model.train()\n    scaler.fit(x)\n    return make()",
    "no command line": "def f():\n    args = parser.parse_args([])\n    return make(args)",
    "parts as a dict": f"def f():\n    {TRAINING}return {{'model': m, 'loader': x}}",
    "parts in a name": f"def f():\n    a = {{'model': m}}\n    {TRAINING}return a | {{'b': 1}}",
    "parts unpacked": f"def f():\n    {TRAINING}return {{**parts}}",
    "parts in order": f"def f():\n    {TRAINING}return model, loader, loss, optimizer",
    "parts by keyword": f"def f():\n    {TRAINING}return SimpleNamespace(model=m, loader=x)",
    "parts by dict": f"def f():\n    {TRAINING}return dict(model=m) if x else None",
    "a deep sum": "def f():\n    return " + "+".join(["a"] * 3000),
    "no Python": "def f(:",
    "no text": "\0",
}  # fmt: skip


@pytest.mark.parametrize("text", FACTORIES.values(), ids=FACTORIES)
def test_what_may_be_a_factory_passes(text: str, tmp_path: Path) -> None:
    path = tmp_path / "script.py"
    path.write_text(text)
    refuse_training(path, "f", "{'model'}")
    refuse_training(path, "absent", "{'model'}")
    refuse_training(tmp_path / "absent.py", "f", "{'model'}")


def test_a_loader_is_refused_only_where_nothing_is_returned(tmp_path: Path) -> None:
    path = tmp_path / "script.py"
    path.write_text(f"def main():\n    {TRAINING}return batches\ndef f():\n    {TRAINING}pass")
    refuse_empty(path, "main", "the loader")
    with pytest.raises(ProfileError, match=r"f returns nothing.*returns the loader"):
        refuse_empty(path, "f", "the loader")


def test_names_that_a_file_may_have(tmp_path: Path) -> None:
    path = tmp_path / "script.py"
    path.write_text("from elsewhere import make_model\n")
    assert mentioned(path, ["make_model", "make_loader"]) == ["make_model"]
    path.write_text("from elsewhere import *\n")
    assert mentioned(path, ["make_model", "make_loader"]) == ["make_model", "make_loader"]
    assert mentioned(tmp_path / "absent.py", ["make_model"]) == ["make_model"]
