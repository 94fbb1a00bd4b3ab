"""`profiler.toml` and `--set`: typed, complete, and refused with the remedy."""

from pathlib import Path

import pytest

from dataset_preflight.foundation.settings import GlobalOptions
from pipeline_profiler.cli.settings import TABLES, Settings, load_settings, setting_fields
from pipeline_profiler.profiling.record.session import ProfileError


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_the_file_then_set_then_defaults() -> None:
    assert load_settings(GlobalOptions()) == Settings()
    Path("profiler.toml").write_text(
        '[record]\nstudy = "birds"\n[measure]\nrepeats = 3\nlimit = 9\n[check]\nmean = [0.5, 0.4]\n'
    )
    found = load_settings(GlobalOptions(assignments=("measure.repeats=7", "record.enabled=false")))
    assert (found.record.study, found.record.enabled) == ("birds", False)
    assert (found.measure.repeats, found.measure.limit) == (7, 9)
    assert found.measure.steps is None
    assert found.check.mean == (0.5, 0.4)
    Path("other.toml").write_text("[measure]\nsteps = 40\n")
    found = load_settings(GlobalOptions(Path("other.toml")))
    assert (found.measure.steps, found.measure.repeats) == (40, None)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[mesure]\n", "there is no table 'mesure'. Did you mean 'measure'"),
        ("[measure]\nrepeat = 3", "[measure] has no key 'repeat'. Did you mean 'repeats'"),
        ("measure = 3", "measure is 3: write it as a table"),
        ("[measure]\nrepeats = true", "measure.repeats is True: write a whole number from 1."),
        ("[measure]\nsteps = 2.5", "write a whole number"),
        ("[measure]\nseed = -1", "write a whole number from 0 to"),
        ("[measure]\nlimit = inf", "write a number of seconds above 0"),
        ("[record]\nenabled = 1", "write true or false"),
        ("[record]\nstudy = 7", "write a text in quotes"),
        ('[check]\nmean = ["a"]', "write a list of numbers"),
        ("[check", "cannot be read as TOML"),
    ],
)
def test_what_cannot_be_used_is_one_sentence_with_the_remedy(text: str, message: str) -> None:
    Path("profiler.toml").write_text(text)
    with pytest.raises(ProfileError) as caught:
        load_settings(GlobalOptions())
    assert str(caught.value).startswith("profiler.toml")
    assert message in str(caught.value)


def test_a_wrong_assignment_names_set() -> None:
    with pytest.raises(ProfileError, match=r"^--set: check\.classes is 1: write"):
        load_settings(GlobalOptions(assignments=("check.classes=1",)))
    with pytest.raises(ProfileError, match=r"Did you mean 'check\.classes'"):
        load_settings(GlobalOptions(assignments=("check.class=3",)))


def test_every_setting_has_a_meaning_and_a_sound_default() -> None:
    fields = setting_fields()
    assert len(fields) == sum(len(of.__dataclass_fields__) for of in TABLES.values())
    for name, key in fields.items():
        assert key.metadata["meaning"], name
        default = list(key.default) if isinstance(key.default, tuple) else key.default
        assert default is None or key.metadata["rule"].fits(default), name
