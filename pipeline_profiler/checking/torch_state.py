"""Seeds and switches of torch, TensorFlow, numpy and random: set for a check, put back after it.

A check draws numbers, builds models and switches modes. What the caller had before is there again
afterwards: the generators of random, numpy and torch, TensorFlow's global seed, the default dtype,
gradient mode and the switches of determinism. Frameworks are touched only where they are imported
already.
"""

from __future__ import annotations

import contextlib
import random
import sys
from collections.abc import Iterator
from typing import Any


@contextlib.contextmanager
def kept_state() -> Iterator[None]:
    """Put every global generator and switch back at the end."""
    undo = [_keep_random(), *_keep_numpy(), *_keep_torch(), *_keep_tensorflow()]
    try:
        yield
    finally:
        for restore, value in undo:
            restore(value)


def seed_everything(seed: int) -> None:
    """Seed random, numpy, torch and TensorFlow as far as they are imported."""
    random.seed(seed)
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed(seed % 2**32)
    if "torch" in sys.modules:
        sys.modules["torch"].manual_seed(seed)
    if hasattr(sys.modules.get("tensorflow"), "random"):
        sys.modules["tensorflow"].random.set_seed(seed)


def _keep_random() -> tuple[Any, Any]:
    return random.setstate, random.getstate()


def _keep_numpy() -> Iterator[tuple[Any, Any]]:
    if "numpy" in sys.modules:
        numpy = sys.modules["numpy"]
        yield numpy.random.set_state, numpy.random.get_state()


def _keep_tensorflow() -> Iterator[tuple[Any, Any]]:
    context = sys.modules.get("tensorflow.python.eager.context")
    if context is not None and hasattr(context, "global_seed"):
        yield sys.modules["tensorflow"].random.set_seed, context.global_seed()


def _keep_torch() -> Iterator[tuple[Any, Any]]:
    torch = sys.modules.get("torch")
    if torch is None:
        return
    yield torch.set_rng_state, torch.get_rng_state()
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        yield torch.cuda.set_rng_state_all, torch.cuda.get_rng_state_all()
    yield torch.set_default_dtype, torch.get_default_dtype()
    yield torch.set_grad_enabled, torch.is_grad_enabled()
    warn = torch.is_deterministic_algorithms_warn_only_enabled()
    strict = torch.are_deterministic_algorithms_enabled()

    def restore(on: bool) -> None:
        if torch.are_deterministic_algorithms_enabled() != on:  # the setter takes seconds to import
            torch.use_deterministic_algorithms(on, warn_only=warn)

    yield restore, strict
    cudnn = torch.backends.cudnn
    yield lambda on: setattr(cudnn, "benchmark", on), cudnn.benchmark
    yield lambda on: setattr(cudnn, "deterministic", on), cudnn.deterministic
