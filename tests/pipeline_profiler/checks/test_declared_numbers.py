"""Where checkpoints declare the mean and deviation of their inputs."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pipeline_profiler.checks.loader_subject import declared_by, read_declaration
from pipeline_profiler.profiling.record.errors import ProfileError

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
NAMED = {"mean": list(MEAN), "std": list(STD)}
PROCESSOR = {"image_mean": list(MEAN), "image_std": list(STD), "do_normalize": True}
UNSCALED = PROCESSOR | {"do_rescale": False, "image_mean": [127.5], "image_std": [255]}
FORMS: dict[str, tuple[Any, Any]] = {
    "timm": (SimpleNamespace(pretrained_cfg=NAMED), (MEAN, STD)),
    "torchvision": (SimpleNamespace(transforms=lambda: SimpleNamespace(**NAMED)), (MEAN, STD)),
    "transformers": (SimpleNamespace(**PROCESSOR), (MEAN, STD)),
    "does not rescale": (UNSCALED, ((0.5,), (1.0,))),
    "does not normalise": (PROCESSOR | {"do_normalize": False}, ((0.0,) * 3, (1.0,) * 3)),
    "nothing": (SimpleNamespace(), None),
}


@pytest.mark.parametrize(("source", "numbers"), FORMS.values(), ids=FORMS)
def test_each_form_is_read(source: Any, numbers: Any) -> None:
    found = declared_by(source)
    assert (found and found[:2]) == numbers


def test_a_model_of_a_folder_has_its_processor_beside_it(tmp_path: Path) -> None:
    with pytest.raises(ProfileError, match="declares no mean"):
        read_declaration(str(tmp_path))
    (tmp_path / "preprocessor_config.json").write_text(json.dumps(PROCESSOR))
    found = declared_by(SimpleNamespace(config=SimpleNamespace(_name_or_path=str(tmp_path))))
    assert found is not None
    assert (found.mean, found.source) == (MEAN, "preprocessor_config.json")
