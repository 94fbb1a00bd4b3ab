"""Compile the C files of this folder into one library: `python audit/kernels/build.py`.

The script needs only the standard library and a C compiler, so it can run beside `pip install`.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.util
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

FOLDER = Path(__file__).resolve().parent
LIBRARY = FOLDER / "kernels.so"
FLAGS = (
    "-O3", "-g0", "-fPIC", "-std=gnu11", "-Wall",
    "-fno-math-errno", "-fno-trapping-math", "-ffp-contract=off",
)  # fmt: skip
ANY_ORDER_FLAGS = ("-fassociative-math", "-fno-signed-zeros")
ANY_ORDER = frozenset({"patches.c"})
"""Files whose sums of floats may be reordered by the compiler; all others are exact."""
SANITIZE_FLAGS = ("-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-DWITHOUT_CLONES")
COMPILERS = ("cc", "gcc", "clang")


def source_hash() -> str:
    """Return the hash of the C files and flags, hexadecimal."""
    digest = hashlib.blake2b(digest_size=16)
    digest.update(repr((FLAGS, ANY_ORDER_FLAGS, sorted(ANY_ORDER))).encode())
    for path in sorted(FOLDER.glob("*.[ch]")):
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()


def is_current(library: Path = LIBRARY) -> bool:
    """Say whether a library was built from the sources beside this file."""
    try:
        return source_hash().encode() in library.read_bytes()
    except OSError:
        return False


def find_compilers() -> Iterator[list[str]]:
    """Yield the commands of the compilers here: $CC, then cc, gcc, clang, ziglang."""
    if chosen := os.environ.get("CC"):
        yield shlex.split(chosen)
    for name in COMPILERS:
        if path := shutil.which(name):
            yield [path]
    if importlib.util.find_spec("ziglang"):
        yield [sys.executable, "-m", "ziglang", "cc"]


def compile_library(compiler: Sequence[str], target: Path, extra: Sequence[str]) -> str:
    """Compile and link the library; return the messages of the compiler, empty on success."""
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=".kernels-") as temporary:
        objects = {path: Path(temporary, f"{path.stem}.o") for path in FOLDER.glob("*.c")}

        def compile_file(path: Path) -> str:
            order = ANY_ORDER_FLAGS if path.name in ANY_ORDER else ()
            stamp = f'-DSOURCE_HASH="{source_hash()}"'
            files = ["-c", str(path), "-o", str(objects[path])]
            return _run([*compiler, *FLAGS, *order, *extra, stamp, *files])

        with ThreadPoolExecutor(min(os.cpu_count() or 1, 4)) as pool:
            if errors := "".join(pool.map(compile_file, sorted(objects))):
                return errors
        linked = Path(temporary, target.name)
        files = [*map(str, sorted(objects.values())), "-o", str(linked), "-lm"]
        errors = _run([*compiler, "-shared", *extra, *files])
        if not errors:
            linked.replace(target)
        return errors


def _run(command: Sequence[str]) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True)
    except OSError as error:
        return f"{command[0]}: {error}"
    return done.stderr or f"{command[0]} failed" if done.returncode else ""


def build_library(target: Path = LIBRARY, *, sanitize: bool = False) -> str:
    """Build the library with the first compiler that can; return what went wrong, or ""."""
    errors = (
        "no C compiler found: install gcc, clang or `pip install 'dataset-preflight[compiler]'`"
    )
    for compiler in find_compilers():
        for extra in [SANITIZE_FLAGS] if sanitize else [(), ("-DWITHOUT_CLONES",)]:
            errors = compile_library(compiler, target, extra)
            if not errors:
                return ""
    return errors


def _main() -> int:
    parser = argparse.ArgumentParser(description="Compile the kernels of audit.")
    parser.add_argument("--sanitize", action="store_true", help="check memory and arithmetic")
    parser.add_argument("--output", type=Path, default=LIBRARY, help="path of the library")
    options = parser.parse_args()
    errors = build_library(options.output, sanitize=options.sanitize)
    print(f"Kernels not built: {errors}" if errors else f"Kernels built: {options.output}")  # noqa: T201
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(_main())
