"""Where checkpoints declare the mean and deviation of their inputs."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pipeline_profiler.checks.loader_subject import LoaderSubject, declared_by, read_declaration
from pipeline_profiler.profiling.record.errors import ProfileError

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
NAMED = {"mean": list(MEAN), "std": list(STD)}
PROCESSOR = {"image_mean": list(MEAN), "image_std": list(STD), "do_normalize": True}


@pytest.mark.parametrize(
    "thing",
    [
        SimpleNamespace(pretrained_cfg=NAMED),
        SimpleNamespace(default_cfg=SimpleNamespace(**NAMED)),
        SimpleNamespace(transforms=lambda: SimpleNamespace(mean=list(MEAN), std=list(STD))),
        SimpleNamespace(**PROCESSOR),
        {"architecture": "resnet18", "pretrained_cfg": NAMED},
        {"preprocess_cfg": NAMED},
    ],
    ids=["timm", "timm-old", "torchvision", "transformers", "timm-file", "open-clip"],
)
def test_each_form_is_read(thing: Any) -> None:
    found = declared_by(thing)
    assert found is not None
    assert found[:2] == (MEAN, STD)


@pytest.mark.parametrize(
    ("changes", "numbers"),
    [
        ({"do_rescale": False, "image_mean": [127.5], "image_std": [255]}, ((0.5,), (1.0,))),
        ({"do_normalize": False}, ((0.0,) * 3, (1.0,) * 3)),
    ],
    ids=["does not rescale: told for pixels of one", "does not normalise"],
)
def test_a_processor_that_leaves_a_part_out(changes: dict[str, Any], numbers: Any) -> None:
    found = declared_by(PROCESSOR | changes)
    assert found is not None
    assert found[:2] == numbers


def test_a_model_of_a_folder_has_its_processor_beside_it(tmp_path: Path) -> None:
    (tmp_path / "preprocessor_config.json").write_text(json.dumps(PROCESSOR))
    model = SimpleNamespace(config=SimpleNamespace(_name_or_path=str(tmp_path)))
    found = declared_by(model)
    assert found is not None
    assert (found.mean, found.source) == (MEAN, "preprocessor_config.json")
    assert read_declaration(str(tmp_path)) == found


@pytest.mark.parametrize(
    "thing", [SimpleNamespace(), {"mean": "red"}, {"mean": [0.5], "std": [1, 2]}, {}, 3], ids=str
)
def test_nothing_is_declared(thing: Any) -> None:
    assert declared_by(thing) is None


def test_what_cannot_be_made_or_read_declares_nothing(tmp_path: Path) -> None:
    def make() -> Any:
        raise RuntimeError("no GPU")

    assert LoaderSubject(make, make_model=make).declared is None
    (tmp_path / "a.json").write_text("{")
    with pytest.raises(ProfileError, match="declares no mean"):
        read_declaration(str(tmp_path / "a.json"))
