"""The wheel holds the library of kernels where a C compiler is found; without one it has none."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

from setuptools import setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_py import build_py

BUILD = Path(__file__).parent / "audit" / "kernels" / "build.py"


def build_kernels() -> bool:
    """Build the library unless it is current; return whether there is one."""
    spec = importlib.util.spec_from_file_location("kernels_build", BUILD)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    if module.is_current():
        return True
    if errors := module.build_library():
        sys.stderr.write(f"Kernels not built, plain forms are used: {errors}\n")
    return not errors


class BuildWithKernels(build_py):
    """Compiles the kernels before the files of the packages are collected."""

    def run(self) -> None:
        """Build the library beside its sources."""
        build_kernels()
        super().run()


class PlatformWheel(bdist_wheel):
    """Names the platform where the wheel holds a library, which serves every Python."""

    def finalize_options(self) -> None:
        """Take over the options; with a library the packages go where compiled ones do."""
        built = build_kernels()
        self.distribution.has_ext_modules = lambda: built
        super().finalize_options()

    def get_tag(self) -> tuple[str, str, str]:
        """Return the tags of Python, of its binary interface and of the platform."""
        return "py3", "none", super().get_tag()[2]


setup(cmdclass={"build_py": BuildWithKernels, "bdist_wheel": PlatformWheel})
