"""What a command ends with where code in it ends the program."""

from __future__ import annotations

import pytest

from audit.cli.ending import exit_code_of
from dataset_preflight.foundation.ending import ExitCode


class OddError(BaseException):
    pass


@pytest.mark.parametrize("error", [SystemExit(0), SystemExit(1), GeneratorExit(), OddError("odd")])
def test_code_that_ends_the_program_leaves_no_result(
    error: BaseException, capsys: pytest.CaptureFixture[str]
) -> None:
    def run() -> int:
        raise error

    assert exit_code_of(run) == ExitCode.NO_RESULT
    told = capsys.readouterr().err
    assert f"no result, because this program failed: {type(error).__name__}" in told
    assert "Traceback" not in told


def test_a_reader_that_left_the_help_is_no_failure() -> None:
    def run() -> int:
        try:
            raise BrokenPipeError
        except BrokenPipeError:
            raise SystemExit(1)  # noqa: B904 - as click does

    assert exit_code_of(run) == ExitCode.CLEAN
