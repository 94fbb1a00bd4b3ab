"""The library of these tests: that of the tree, else one that is built for them."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from audit.kernels.build import build_library, find_compilers
from audit.kernels.library import PATH_VARIABLE, available, load_kernels


@pytest.fixture(scope="session")
def _library(tmp_path_factory: pytest.TempPathFactory) -> Path | None:
    if available():
        return None
    if not any(find_compilers()):
        pytest.skip("no C compiler")
    path = tmp_path_factory.mktemp("kernels") / "kernels.so"
    assert not build_library(path)
    return path


def _use(library: Path | None) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        if library:
            patch.setenv(PATH_VARIABLE, str(library))
        load_kernels.cache_clear()
        assert available()
        yield
    load_kernels.cache_clear()


@pytest.fixture
def kernels(_library: Path | None) -> Iterator[None]:
    """Kernels are there, whatever the tree holds."""
    yield from _use(_library)


@pytest.fixture(scope="module")
def kernels_of_module(_library: Path | None) -> Iterator[None]:
    """The same for all tests of a module."""
    yield from _use(_library)
