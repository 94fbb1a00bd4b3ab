"""Starting the app: where its script is, and the settings it runs with. No Streamlit imported here.

The script, `preflight_app.py`, lies beside the packages, in a checkout and wherever they are
installed. It serves this machine alone (127.0.0.1), reports nothing to anybody, watches no files,
and never shows a traceback to a visitor.
"""

from __future__ import annotations

import importlib.util
import json
import os
import secrets
import sys
from collections.abc import Sequence
from pathlib import Path

from audit.errors import MissingExtraError, RunError

SCRIPT = "preflight_app"  # a module, beside the packages
TOKEN = "AUDIT_APP_TOKEN"  # the environment variable, not the token
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
    """Return the path of the app's script; raises RunError where this installation has none."""
    # In a checkout, below --user or --target: always beside the packages.
    beside = Path(__file__).resolve().parent.parent.parent / f"{SCRIPT}.py"
    if beside.is_file():
        return beside
    found = importlib.util.find_spec(SCRIPT)
    if found is not None and found.origin is not None:
        return Path(found.origin)
    raise RunError(
        f"This installation lacks {SCRIPT}.py: install the package again with "
        "`pip install --force-reinstall 'dataset-preflight[app]'`."
    )


def options(address: str = "127.0.0.1", *, browser: bool = True) -> dict[str, str | bool]:
    """Return the options of Streamlit that the app runs with, each of its own type."""
    return {
        "server.address": address,
        "server.headless": not browser,
        "server.fileWatcherType": "none",
        "browser.gatherUsageStats": False,
        "client.toolbarMode": "minimal",
        "client.showErrorDetails": "none",
        "theme.baseRadius": "small",
        "theme.chartCategoricalColors": CHARTS,
        **{f"theme.light.{name}": value for name, value in LIGHT.items()},
        **{f"theme.dark.{name}": value for name, value in DARK.items()},
    }


def settings(
    address: str = "127.0.0.1", port: int | None = None, *, browser: bool = True
) -> list[str]:
    """Return the settings of the server as command-line options."""
    chosen = options(address, browser=browser)
    if port is not None:  # unsaid, the first free one from 8501 on is taken
        chosen["server.port"] = str(port)
    words = {name: str(v).lower() if isinstance(v, bool) else v for name, v in chosen.items()}
    return [part for name, word in words.items() for part in (f"--{name}", word)]


def command(
    words: Sequence[str],
    address: str = "127.0.0.1",
    port: int | None = None,
    *,
    browser: bool = True,
) -> list[str]:
    """Return the command of Streamlit that serves the app, open to every user of the machine.

    Raises MissingExtraError without Streamlit, RunError for a word that does not exist.
    """
    _check(words)
    start = [sys.executable, "-m", "streamlit", "run", str(script())]
    return [*start, *settings(address, port, browser=browser), "--", *words]


def guarded_command(
    words: Sequence[str],
    address: str = "127.0.0.1",
    port: int | None = None,
    *,
    browser: bool = True,
) -> list[str]:
    """Return the command that serves the app to the holder of the link; raises as `command`."""
    _check(words)
    # Without a terminal's own browser window: the server opens one with the link.
    chosen = {
        "address": address, "port": port, "browser": browser,
        "options": options(address, browser=False),
    }  # fmt: skip
    return [sys.executable, "-m", "audit.ui.server", json.dumps(chosen), "--", *words]


def _check(words: Sequence[str]) -> None:
    if importlib.util.find_spec("streamlit") is None:
        raise MissingExtraError("streamlit", "app")
    for word in words:
        if not Path(word).exists():
            raise RunError(
                f"There is nothing at {word}: give a run directory, as made by `audit scan`, or a "
                "saved profiler session."
            )


def serve(
    words: Sequence[str],
    address: str = "127.0.0.1",
    port: int | None = None,
    *,
    browser: bool = True,
) -> None:
    """Become the server: this process is replaced, so that Ctrl-C and signals reach it."""
    line = guarded_command(words, address, port, browser=browser)
    os.execve(line[0], line, {**os.environ, TOKEN: secrets.token_urlsafe(32)})
