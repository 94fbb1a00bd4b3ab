"""Views saved by name: a page and the values of its link, in a small file of the run."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from urllib.parse import urlencode

from audit.errors import RunError, UsageError
from audit.run.synced_files import write_synced

FILE = "app-views.json"
MOST, LETTERS = 100, 60
View = dict[str, str]  # of a link; "page" among them


def load_views(run: Path) -> dict[str, View]:
    """Return the views by name, the latest last; none where the file is absent or damaged."""
    with contextlib.suppress(OSError, ValueError, AttributeError):
        found = json.loads((run / FILE).read_text("utf-8"))
        return {
            str(name): {str(k): str(v) for k, v in view.items()} for name, view in found.items()
        }
    return {}


def save_view(run: Path, name: str, page: str, values: View) -> None:
    """Save a view, or replace that of the same name; raises UsageError, RunError."""
    name = " ".join(name.split())[:LETTERS]
    if not name:
        raise UsageError("Give the view a name.")
    views = {n: v for n, v in load_views(run).items() if n != name}
    if len(views) >= MOST:
        raise UsageError(f"This run has {MOST} views: remove one first.")
    _write(run, views | {name: values | {"page": page}})


def remove_view(run: Path, name: str) -> None:
    """Remove a view; nothing where there is none of that name."""
    _write(run, {n: v for n, v in load_views(run).items() if n != name})


def link_of(view: View, run: str) -> str:
    """Return the link of a view, relative to the app."""
    values = {k: v for k, v in view.items() if k not in ("page", "run")}
    return f"{view.get('page', '')}?{urlencode({'run': run, **values})}"


def _write(run: Path, views: dict[str, View]) -> None:
    try:
        write_synced(run / FILE, (json.dumps(views, ensure_ascii=False, indent=1) + "\n").encode())
    except OSError as error:
        raise RunError(f"The view cannot be saved in {run}: {error.strerror or error}.") from None
