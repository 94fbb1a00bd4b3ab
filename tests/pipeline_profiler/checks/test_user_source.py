"""Where a check points in the user's source: the marked line, and fixes that apply as a patch."""

import ast
import re
import subprocess
from pathlib import Path

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
GATHERED = "Their sum.", "Call (loss / 4).backward()."
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


def fixed(folder: Path, text: str, code: str, part: str, says: tuple[str, str]) -> str:
    """Return the text of a script after the fix of a check, applied by git."""
    at = site(folder, text, part)
    found = re.search(r"\w+\.step\(.*\)", text)
    step = site_of(place(folder / "train.py", found[0])) if found else None
    answer = Answer(Judgement.FAIL, says[0], (), says[1])
    diff = unified_diff([fix_of(code, answer, at, step)])
    if diff:
        subprocess.run(["git", "apply", "-"], input=diff, text=True, cwd=folder, check=True)
    return (folder / "train.py").read_bytes().decode()


# name: (code, what the check points at, sentence and next step, changes of the script, what the fix
# replaces and by what; None: the fix is in doubt and not printed)
FIXES = {
    "no zero_grad": ("TRAIN016", "loss.backward()", CLEAR, {},
        ("step()\n", "step()\n        optimizer.zero_grad()\n")),
    "with a scaler": ("TRAIN016", "loss.backward()", CLEAR,
        {"optimizer.step()": "scaler.step(optimizer)  # scaled"},
        ("# scaled\n", "# scaled\n        optimizer.zero_grad()\n")),
    "no train()": ("TRAIN009", "model(x)", TRAIN, {},
        ("    for x, y", "    model.train()\n    for x, y")),
    "no train() in a single loop": ("TRAIN009", "model(x)", TRAIN,
        {"for epoch in range(9):": "if True:"},
        ("        loss = ", "        model.train()\n        loss = ")),
    "no eval()": ("TRAIN009", "model(batch[0])", EVAL,
        {"    for x, y": "    model.train()\n    for x, y"},
        ("        for batch", "        model.eval()\n        for batch")),
    "no train() in a function": ("TRAIN009", "model(x)", TRAIN,
        {"for epoch in range(9):": "def fit(model):"},
        ("    for x, y", "    model.train()\n    for x, y")),
    "no eval() in a function": ("TRAIN009", "net(x)", EVAL,
        {"train = ": "def test(net):\n    for x in val:\n        out = net(x)\ntrain = ",
        "    for x, y": "    model.train()\n    for x, y"},
        ("    for x in val", "    net.eval()\n    for x in val")),
    "softmax of a function": ("TRAIN020", "criterion(F.softmax(model(x), dim=1), y)", TWICE,
        {"model(x), y": "F.softmax(model(x), dim=1), y"},
        ("F.softmax(model(x), dim=1)", "model(x)")),
    "softmax of a method": ("TRAIN020", "criterion(out, y)", TWICE,
        {"loss = criterion(model(x), y)": "out = model(x).softmax(-1)\n"
        "        loss = criterion(out, y)"},
        (".softmax(-1)", "")),
    "softmax as a layer": ("TRAIN020", "criterion(model(x), y)", TWICE,
        {"nn.ReLU()": "nn.ReLU(), nn.Softmax(dim=1)"}, (", nn.Softmax(dim=1)", ", nn.Identity()")),
    "softmax in forward": ("TRAIN020", "criterion(model(x), y)", TWICE,
        {"train = ": "def forward(self, x):\n    return torch.softmax(self.head(x), 1)\ntrain = "},
        ("torch.softmax(self.head(x), 1)", "self.head(x)")),
    "no shuffle": ("LOAD002", "DataLoader(data, 32)", SHUFFLE, {},
        ("data, 32", "data, 32, shuffle=True")),
    "shuffle=False": ("LOAD002", "DataLoader(data", SHUFFLE,
        {"data, 32": "data, batch_size=32, shuffle=False, num_workers=2"},
        ("shuffle=False", "shuffle=True")),
    "drop_last": ("LOAD005", "DataLoader(held", ("", "Set drop_last=False here."),
        {"held, 32": "held, 32, drop_last=True"}, ("drop_last=True", "drop_last=False")),
    "plateau": ("TRAIN044", "right =", ("", "Make the schedule with mode='max'."), {},
        ("Plateau(optimizer)", "Plateau(optimizer, mode='max')")),
    "no no_grad": ("TRAIN049", "net(x)", PLAIN,
        {"train = ": "def test(net):\n    net.eval()\n    for x in val:\n        out = net(x)\n"
        "train = "},
        ("def test(", "@torch.no_grad()\ndef test(")),
    "graphs in a list": ("TRAIN056", "losses.append(loss)", PLAIN,
        {"        optimizer.step()": "        optimizer.step()\n        losses.append(loss)"},
        ("(loss)\n", "(loss.detach())\n")),
    "graphs in a sum": ("TRAIN056", "total += loss * len(y)", PLAIN,
        {"        optimizer.step()": "        optimizer.step()\n        total += loss * len(y)"},
        ("loss * len(y)", "(loss * len(y)).detach()")),
    "accumulation": ("TRAIN016", "loss.backward()", GATHERED,
        {"        optimizer.step()": "        if (n + 1) % args.accum == 0:\n"
        "            optimizer.step()"},
        ("loss.backward()", "(loss / args.accum).backward()")),
    "accumulation with a scaler": ("TRAIN016", "scaler.scale(loss).backward()", GATHERED,
        {"loss.backward()": "scaler.scale(loss).backward()",
        "        optimizer.step()": "        if n % 4 == 3:\n            optimizer.step()"},
        ("scale(loss)", "scale(loss / 4)")),
    "workers with one seed": ("LOAD001", "DataLoader(data",
        ("numpy.random is in the same state in several of 2 workers; numpy.random starts the"
        " second epoch in the state of the first: the same random numbers are used again.", ""),
        {"train = ": "def init(worker):\n    np.random.seed(7 + worker)\ntrain = ",
        "data, 32": "data, 32, worker_init_fn=init"},
        ("seed(7 + worker)", "seed(torch.initial_seed() % 2**32)")),
    "state": ("TRAIN043", "model.state_dict()", PLAIN, {},
        ("model.state_dict()", "{key: value.clone() for key, value in"
        " model.state_dict().items()}")),
    "a sampler shuffles": ("LOAD002", "DataLoader(data", SHUFFLE,
        {"data, 32": "data, 32, sampler=order"}, None),
    "shuffle by an option": ("LOAD002", "DataLoader(data", SHUFFLE,
        {"data, 32": "data, 32, shuffle=args.shuffle"}, None),
    "shuffle by position": ("LOAD002", "DataLoader(data", SHUFFLE,
        {"data, 32": "data, 32, False"}, None),
    "two loaders in one function": ("LOAD002", "def make():", SHUFFLE,
        {"train = DataLoader(data, 32)\nval": "def make():\n    return DataLoader(data),"
        " DataLoader(held)\nval"},
        None),
    "a frozen part stays in eval mode": ("TRAIN009", "model(x)", TRAIN,
        {"for epoch in range(9):\n": "for epoch in range(9):\n    model[0].eval()\n"
        "    model.backbone.eval()\n"},
        None),
    "a function that calls the model": ("TRAIN009", "checkpoint(model, x)", TRAIN,
        {"model(x)": "checkpoint(model, x)"}, None),
    "eval() without train() in the loop": ("TRAIN009", "model(batch[0])", EVAL, {}, None),
    "statements that share a line": ("TRAIN016", "loss.backward()", CLEAR,
        {"        optimizer.step()": "        optimizer.step(); n += 1"}, None),
    "a step on the line of an if": ("TRAIN016", "loss.backward()", CLEAR,
        {"        optimizer.step()": "        if n % 4 == 0: optimizer.step()"}, None),
    "a closure": ("TRAIN016", "loss.backward()", CLEAR,
        {"optimizer.step()": "optimizer.step(closure)"}, None),
    "softmax of attention": ("TRAIN020", "criterion(model(x), y)", TWICE,
        {"train = ": "def forward(self, q, k):\n    shares = torch.softmax(q @ k, -1)\ntrain = "},
        None),
    "softmax as a layer of attention": ("TRAIN020", "criterion(model(x), y)", TWICE,
        {"train = ": "class Net:\n    attend = nn.Softmax(dim=1)\ntrain = "}, None),
    "another loss": ("TRAIN020", "criterion(F.softmax(model(x), 1), y)",
        ("The loss is kl_div.", ""), {"model(x), y": "F.softmax(model(x), 1), y"}, None),
    "windows line ends": ("TRAIN009", "model(x)", TRAIN, {"import torch\n": "import torch\r\n"},
        None),
    "no last line end": ("TRAIN009", "model(x)", TRAIN, {"(optimizer)\n": "(optimizer)"}, None),
    "a function that trains too": ("TRAIN049", "net(x)", PLAIN,
        {"train = ": "def test(net):\n    net.eval()\n    for x in val:\n        out = net(x)\n"
        "        if train: out.backward()\ntrain = "},
        None),
    "a function without a loop": ("TRAIN049", "net(x)", PLAIN,
        {"train = ": "def test(net, x):\n    net.eval()\n    return net(x)\ntrain = "}, None),
    "an evaluation of the script": ("TRAIN049", "model(batch[0])", PLAIN, {}, None),
    "outputs of any form in a list": ("TRAIN056", "outs.append(out)", PLAIN,
        {"        optimizer.step()": "        out = model(x)\n        outs.append(out)"}, None),
    "pairs in a list": ("TRAIN056", "losses.append((epoch, loss))", PLAIN,
        {"        optimizer.step()": "        losses.append((epoch, loss))"}, None),
    "two counts in a loop": ("TRAIN016", "loss.backward()", GATHERED,
        {"        optimizer.step()": "        if n % 4 == 3:\n            optimizer.step()\n"
        "        if n % 100 == 0: print(n)"},
        None),
    "a count of other batches": ("TRAIN016", "loss.backward()", GATHERED,
        {"        optimizer.step()": "        if n % 8 == 7:\n"
        "            optimizer.step()"}, None),
    "a sum of losses": ("TRAIN016", "(loss + penalty).backward()", GATHERED,
        {"loss.backward()": "(loss + penalty).backward()",
        "        optimizer.step()": "        if n % 4 == 3:\n            optimizer.step()"}, None),
    "workers that seed another generator": ("LOAD001", "DataLoader(data",
        ("random is in the same state in several of 2 workers: the same.", ""),
        {"train = ": "def init(worker):\n    np.random.seed(7 + worker)\ntrain = ",
        "data, 32": "data, 32, worker_init_fn=init"}, None),
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
    at = site(tmp_path, SCRIPT, "train = ")
    path, fixes = "train.py", [{("train.py", 4): "a = 1\n"}, {("train.py", 4): "b = 1\n"}]
    diff = unified_diff([*fixes, {(path, 5): "c = 1\n"}, {(path, 6): "if\n"} if not at else {}])
    subprocess.run(["git", "apply", "-"], input=diff, text=True, cwd=tmp_path, check=True)
    lines = SCRIPT.splitlines()
    assert (tmp_path / path).read_text().splitlines() == [*lines[:3], "b = 1", "c = 1", *lines[5:]]
    assert unified_diff([{(path, 6): "if\n"}]) == ""


@pytest.mark.parametrize(
    ("text", "part", "mark"),
    [
        (
            "    y = model(x)  # all\n",
            "model(x)",
            ["  1 |     y = model(x)  # all", "    |         ^^^^^^^^"],
        ),
        ("\ty = f(a,\n\t\tb)\n", "f(a,", ["  1 | \ty = f(a,", "    | \t    ^^^^"]),
        ("é = f(a)\n", "f(a)", ["  1 | é = f(a)", "    | ^^^^^^^^"]),
    ],
)
def test_the_mark_stands_under_the_expression(
    text: str, part: str, mark: list[str], tmp_path: Path
) -> None:
    code = f"if 1:\n{text}" if text[0] in " \t" else text
    found = site(tmp_path, code, part)
    assert found.marked() == [line.replace("1 |", f"{found.at.lineno} |") for line in mark]


def test_a_place_without_columns_marks_the_line(tmp_path: Path) -> None:
    (tmp_path / "x.py").write_text("if 1:\n    y = 2  \n")
    found = site_of(f"{tmp_path}/x.py:2")
    assert found is not None
    assert found.marked()[1] == "    |     ^^^^^"
    assert (found.at.lineno, found.at.col_offset, found.at.end_col_offset) == (2, 4, 9)
    broken = [f"{tmp_path}/x.py:99", f"{tmp_path}/none.py:1", "", "x.py", "train.py:3:x"]
    assert [site_of(text) for text in broken] == [None] * 5
