"""Where a check points in the user's source: the marked line, and fixes that apply as a patch."""

import ast
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from pipeline_profiler.checks.check import Answer, Judgement
from pipeline_profiler.checks.user_source import Site, fix_of, site_of, unified_diff

SCRIPT = """\
import torch
from torch import nn
from torch.utils.data import DataLoader
train = DataLoader(data, 32)
val = DataLoader(held, 32)
model = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(9):
    for x, y in train:
        loss = criterion(model(x), y)
        loss.backward()
        optimizer.step()
    with torch.no_grad():
        for batch in val:
            right = (model(batch[0]).argmax(1) == batch[1]).sum()
    best = model.state_dict()
    plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer)
"""
TRAIN = ("", "Call model.train() at the head of each epoch.")
EVAL = ("", "Call model.eval() before each.")
CLEAR, SHUFFLE = ("", "Call zero_grad()."), ("", "Set shuffle=True, or enlarge.")
PLAIN = ("", "")
TWICE = ("Outputs are probabilities (between 0 and 1, sum 1).", "")


def place(path: Path, part: str) -> str:
    """Return the place of the first occurrence of a part of the file."""
    text = path.read_text()
    before = text[: text.index(part)]
    line, column = before.count("\n") + 1, len(before.rpartition("\n")[2].encode())
    return f"{path}:{line}:{column}-{line}:{column + len(part.encode())}"


def site(folder: Path, text: str, part: str) -> Site:
    path = folder / "train.py"
    path.write_bytes(text.encode())
    site_of.cache_clear()
    found = site_of(place(path, part))
    assert found is not None
    return found


def fixed(folder: Path, text: str, code: str, part: str, texts: tuple[str, str]) -> str:
    """Return the text of a script after the fix of a check, applied by git."""
    at = site(folder, text, part)
    (found,) = re.findall(r"\w+\.step\(.*\)", text)
    step = site_of(place(folder / "train.py", found))
    answer = Answer(Judgement.FAIL, texts[0], (), texts[1])
    diff = unified_diff([fix_of(code, answer, at, step)])
    if diff:
        subprocess.run(["git", "apply", "-"], input=diff, text=True, cwd=folder, check=True)
    return (folder / "train.py").read_bytes().decode()


def after_step(line: str) -> dict[str, str]:
    """A change of the script: a line after the optimizer's step."""
    return {"        optimizer.step()": f"        optimizer.step()\n        {line}"}


def with_test(end: str = "") -> dict[str, str]:
    """A change of the script: a function that evaluates."""
    text = "def test(net):\n    net.eval()\n    for x in val:\n        out = net(x)\n"
    return {"train = ": f"{text}{end}train = "}


LOOP, BACKWARD, FIRST, HELD = (
    "    for x, y",
    "loss.backward()",
    "DataLoader(data",
    "model(batch[0])",
)
SOFT, STATE = "F.softmax(model(x), dim=1)", "model.state_dict()"
CLONED = f"{{key: value.clone() for key, value in {STATE}.items()}}"
# name: (code, what the check points at, sentence and next step, changes of the script, what the fix
# replaces and by what; None: the fix is in doubt and not printed)
FIXES: dict[str, Any] = {
    "no zero_grad": ("TRAIN016", BACKWARD, CLEAR, {},
        ("step()\n", "step()\n        optimizer.zero_grad()\n")),
    "with a scaler": ("TRAIN016", BACKWARD, CLEAR,
        {"optimizer.step()": "scaler.step(optimizer)  # scaled"},
        ("# scaled\n", "# scaled\n        optimizer.zero_grad()\n")),
    "no train()": ("TRAIN009", "model(x)", TRAIN, {}, (LOOP, f"    model.train()\n{LOOP}")),
    "no eval()": ("TRAIN009", HELD, EVAL, {LOOP: f"    model.train()\n{LOOP}"},
        ("        for batch", "        model.eval()\n        for batch")),
    "softmax of a function": ("TRAIN020", f"criterion({SOFT}, y)", TWICE,
        {"model(x), y": f"{SOFT}, y"}, (SOFT, "model(x)")),
    "softmax of a method": ("TRAIN020", "criterion(out, y)", TWICE,
        {"loss = criterion(model(x), y)": "out = model(x).softmax(-1); loss = criterion(out, y)"},
        (".softmax(-1)", "")),
    "softmax as a layer": ("TRAIN020", "criterion(model(x), y)", TWICE,
        {"nn.ReLU()": "nn.ReLU(), nn.Softmax(dim=1)"}, (", nn.Softmax(dim=1)", ", nn.Identity()")),
    "no shuffle": ("LOAD002", FIRST, SHUFFLE, {}, ("data, 32", "data, 32, shuffle=True")),
    "shuffle=False": ("LOAD002", FIRST, SHUFFLE,
        {"data, 32": "data, batch_size=32, shuffle=False, num_workers=2"},
        ("shuffle=False", "shuffle=True")),
    "plateau": ("TRAIN044", "right =", ("", "Make the schedule with mode='max'."), {},
        ("Plateau(optimizer)", "Plateau(optimizer, mode='max')")),
    "no no_grad": ("TRAIN049", "net(x)", PLAIN, with_test(),
        ("def test(", "@torch.no_grad()\ndef test(")),
    "graphs in a list": ("TRAIN056", "losses.append(loss)", PLAIN,
        after_step("losses.append(loss)"), ("(loss)\n", "(loss.detach())\n")),
    "graphs in a sum": ("TRAIN056", "total += loss * len(y)", PLAIN,
        after_step("total += loss * len(y)"), ("loss * len(y)", "(loss * len(y)).detach()")),
    "state": ("TRAIN043", STATE, PLAIN, {}, (STATE, CLONED)),
    "a sampler shuffles": ("LOAD002", FIRST, SHUFFLE, {"data, 32": "data, sampler=order"}, None),
    "shuffle by an option": ("LOAD002", FIRST, SHUFFLE,
        {"data, 32": "data, 32, shuffle=args.shuffle"}, None),
    "a frozen part stays in eval mode": ("TRAIN009", "model(x)", TRAIN,
        {LOOP: f"    model[0].eval()\n    model.backbone.eval()\n{LOOP}"}, None),
    "eval() without train() in the loop": ("TRAIN009", HELD, EVAL, {}, None),
    "statements that share a line": ("TRAIN016", BACKWARD, CLEAR,
        {"        optimizer.step()": "        optimizer.step(); n += 1"}, None),
    "softmax of attention": ("TRAIN020", "criterion(model(x), y)", TWICE,
        {"train = ": "def forward(self, q, k):\n    shares = torch.softmax(q @ k, -1)\ntrain = "},
        None),
    "windows line ends": ("TRAIN009", "model(x)", TRAIN, {"import torch\n": "import torch\r\n"},
        None),
    "a function that trains too": ("TRAIN049", "net(x)", PLAIN,
        with_test("        if train: out.backward()\n"), None),
    "pairs in a list": ("TRAIN056", "losses.append((epoch, loss))", PLAIN,
        after_step("losses.append((epoch, loss))"), None),
}  # fmt: skip


@pytest.mark.parametrize("name", FIXES)
def test_a_fix_applies_with_git_and_a_doubtful_fix_is_not_printed(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    code, part, answer, changes, fix = FIXES[name]
    text = SCRIPT
    for before, after in changes.items():
        assert before in text
        text = text.replace(before, after)
    ast.parse(text)
    old, new = fix or ("", "")
    assert old in text
    assert fixed(tmp_path, text, code, part, answer) == text.replace(old, new)


def test_fixes_are_one_patch_with_one_change_a_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text("a = 1\nb = 1\n")
    rows = (1, "a = 2\n"), (1, "a = 3\n"), (2, "b = 3\n")
    diff = unified_diff({("train.py", line): text} for line, text in rows)
    subprocess.run(["git", "apply", "-"], input=diff, text=True, cwd=tmp_path, check=True)
    assert (tmp_path / "train.py").read_text() == "a = 3\nb = 3\n"
    assert unified_diff([{("train.py", 1): "if\n"}]) == ""


def test_the_mark_stands_under_the_expression(tmp_path: Path) -> None:
    found = site(tmp_path, "if 1:\n\ty = f(a,\n\t\tb)\n", "f(a,")
    assert found.marked() == ["  2 | \ty = f(a,", "    | \t    ^^^^"]
    found = site(tmp_path, "\u00e9 = f(a)\n", "f(a)")
    assert found.marked()[1] == "    | ^^^^^^^^"  # columns count bytes: the whole line
    whole = site_of(f"{tmp_path}/train.py:1")
    assert whole is not None
    assert whole.marked() == found.marked()
    broken = [f"{tmp_path}/train.py:99", f"{tmp_path}/none.py:1", "", "x.py", "train.py:3:x"]
    assert [site_of(text) for text in broken] == [None] * 5
