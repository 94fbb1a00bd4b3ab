"""The one page over an audit and a profile: `dataset-preflight DATA -- python train.py`.

Imports nothing, because the recorder in a user's training imports `foundation`; `check` is loaded
at its first use.
"""


def __getattr__(name: str) -> object:
    if name != "check":
        raise AttributeError(name)
    from dataset_preflight.interface import check_training

    return check_training
