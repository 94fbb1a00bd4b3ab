"""What docs/ci.md tells people to paste: its YAML is read, and its commands are run."""

from __future__ import annotations

import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
import yaml
from markdown_it import MarkdownIt

from tests.conftest import ROOT, make_tree
from tests.warm import warm_audit

PAGE = ROOT / "docs" / "ci.md"


def snippets() -> list[Any]:
    parsed = MarkdownIt("commonmark").parse(PAGE.read_text(encoding="utf-8"))
    return [yaml.safe_load(t.content) for t in parsed if t.type == "fence" and t.info == "yaml"]


@pytest.mark.usefixtures("peers")
def test_the_hook_of_this_repository_has_the_form_of_a_hook() -> None:
    from pre_commit import clientlib

    path = ROOT / ".pre-commit-hooks.yaml"
    hooks = yaml.safe_load(path.read_text(encoding="utf-8"))
    assert [hook["id"] for hook in hooks] == ["audit", "dataset-preflight"]
    for hook in hooks:
        assert {"id", "name", "entry", "language"} <= set(hook)
        assert hook["language"] == "python"  # which installs the package, as pyproject.toml says
        assert f"{hook['entry'].split()[0]} =" in (ROOT / "pyproject.toml").read_text("utf-8")
        assert hook["pass_filenames"] is False
    clientlib.load_manifest(path)


@pytest.mark.usefixtures("peers")
def test_the_configuration_of_the_hook_is_one(tmp_path: Path) -> None:
    from pre_commit import clientlib

    _, config = snippets()
    (hook,) = config["repos"][0]["hooks"]
    assert (hook["language"], hook["pass_filenames"]) == ("system", False)
    path = tmp_path / "config.yaml"
    path.write_text(yaml.safe_dump(config))
    clientlib.load_config(path)


@pytest.mark.slow
def test_the_steps_of_the_action_run_and_the_hook_is_the_first(tmp_path: Path) -> None:
    action, config = snippets()
    steps = [step["run"] for step in action["jobs"]["audit"]["steps"] if "run" in step]
    installed, *steps = steps
    assert installed.startswith("pip install tools/dataset_preflight-*.whl")
    tree = make_tree(tmp_path / "images")
    first, *rest = sorted(file for file in tree.rglob("*") if file.is_file())
    first.write_text("no image")  # an error: the step fails, the report comes
    for file in rest[5:]:
        file.unlink()
    assert config["repos"][0]["hooks"][0]["entry"] == steps[0]
    page, report = map(shlex.split, steps)
    line = [sys.executable, "-m", page[0].replace("-", "_"), *page[1:]]
    ended = subprocess.run(line, cwd=tmp_path, capture_output=True, text=True)
    assert ended.returncode == 1, ended.stdout + ended.stderr
    suite = ElementTree.parse(tmp_path / "preflight.xml").getroot()
    assert suite.get("failures") == "1"
    assert report[0] == "audit"
    assert warm_audit(*report[1:], folder=tmp_path).returncode == 0
    root = ElementTree.parse(tmp_path / "audit.xml").getroot()
    assert int(root.get("failures", 0)) > 0
    assert '"version":"2.1.0"' in (tmp_path / "audit.sarif").read_text(encoding="utf-8")
