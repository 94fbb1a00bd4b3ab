"""Starting the app: where its script is, and the settings it runs with. No Streamlit imported here.

The script, `app.py`, lies beside the packages in a checkout and under share/ in an installation. It
serves this machine alone (127.0.0.1), reports nothing to anybody, watches no files, and never shows
a traceback to a visitor.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from audit.errors import MissingExtraError, RunError

SHARE = Path("share") / "dataset-preflight" / "app.py"
LIGHT = {
    "primaryColor": "#0b5c8a", "backgroundColor": "#fbfbfa", "secondaryBackgroundColor": "#ffffff",
    "textColor": "#1c1e21", "borderColor": "#dfe2e6",
}  # fmt: skip
DARK = {
    "primaryColor": "#7cc4f0", "backgroundColor": "#15171a", "secondaryBackgroundColor": "#1d2024",
    "textColor": "#e6e8eb", "borderColor": "#33383f",
}  # fmt: skip
CHARTS = '["#3b6fb6", "#c2762b", "#3f8f5f", "#8a5fb0", "#b3475e", "#7a7f87"]'


def script() -> Path:
    """Return the path of app.py; raises RunError where this installation has none."""
    beside = Path(__file__).resolve().parent.parent.parent / "app.py"
    for path in (beside, Path(sys.prefix) / SHARE):
        if path.is_file():
            return path
    raise RunError(
        "This installation lacks app.py: install the package again with "
        "`pip install --force-reinstall 'dataset-preflight[app]'`."
    )


def settings(
    address: str = "127.0.0.1", port: int | None = None, *, browser: bool = True
) -> list[str]:
    """Return the settings of the server as command-line options."""
    chosen = {
        "server.address": address,
        "server.headless": "false" if browser else "true",
        "server.fileWatcherType": "none",
        "browser.gatherUsageStats": "false",
        "client.toolbarMode": "minimal",
        "client.showErrorDetails": "none",
        "theme.baseRadius": "small",
        "theme.chartCategoricalColors": CHARTS,
        **{f"theme.light.{name}": value for name, value in LIGHT.items()},
        **{f"theme.dark.{name}": value for name, value in DARK.items()},
    }
    if port is not None:  # unsaid, the first free one from 8501 on is taken
        chosen["server.port"] = str(port)
    return [part for name, value in chosen.items() for part in (f"--{name}", value)]


def command(
    words: Sequence[str],
    address: str = "127.0.0.1",
    port: int | None = None,
    *,
    browser: bool = True,
) -> list[str]:
    """Return the command that serves the app for these runs and sessions.

    Raises MissingExtraError without Streamlit, RunError for a word that does not exist.
    """
    if importlib.util.find_spec("streamlit") is None:
        raise MissingExtraError("streamlit", "app")
    for word in words:
        if not Path(word).exists():
            raise RunError(
                f"There is nothing at {word}: give a run directory, as made by `audit scan`, or a "
                "saved profiler session."
            )
    start = [sys.executable, "-m", "streamlit", "run", str(script())]
    return [*start, *settings(address, port, browser=browser), "--", *words]


def serve(
    words: Sequence[str],
    address: str = "127.0.0.1",
    port: int | None = None,
    *,
    browser: bool = True,
) -> None:
    """Become the server: this process is replaced, so that Ctrl-C and signals reach it."""
    line = command(words, address, port, browser=browser)
    os.execv(line[0], line)
