"""Sending results to a service with `--push`: address, token, and the reason of a refusal."""

from __future__ import annotations

import contextlib
import json
import os
import re
import urllib.error

TARGET = re.compile(r"https?://[^/]+(/.*)?/[^/]+/?")


def find_push_problem(url: str, what: str, *, dry_run: bool) -> str:
    """Return why no `what` can be sent to `url`, before it is measured; else ''."""
    if not TARGET.fullmatch(url):
        return f"--push names a {what} of a service, https://HOST/NAME, not {url!r}."
    if not (dry_run or os.environ.get("PREFLIGHT_TOKEN")):
        return "--push needs the token of a reviewer in PREFLIGHT_TOKEN."
    return ""


def refusal_of(error: Exception) -> str:
    """Return the sentence of a service that refused, or what is wrong with the way there."""
    if isinstance(error, urllib.error.HTTPError):
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
            return str(json.load(error)["error"])
    return str(error)
