"""The subject that fits a user's training: of torch, or of Keras."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import Any

from pipeline_profiler.checking.keras_subject import KerasSubject
from pipeline_profiler.checking.training_subject import TrainingSubject
from pipeline_profiler.checking.user_calls import UsersError
from pipeline_profiler.checking.user_training import is_keras, made_from


def choose_subject(
    functions: Mapping[str, Callable[..., Any]], seed: int = 0
) -> TrainingSubject | KerasSubject:
    """Where Keras is imported, the training is made once to see of which kind its model is."""
    make = made_from(functions)
    if "keras" not in sys.modules:
        return TrainingSubject(make, seed, functions=functions)
    try:
        keras = is_keras(make().model)
    except UsersError:  # each check will say it
        keras = "torch" not in sys.modules
    return KerasSubject(make, seed) if keras else TrainingSubject(make, seed, functions=functions)
