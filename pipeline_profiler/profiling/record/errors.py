"""The one error of this package that a caller can fix."""

from __future__ import annotations


class ProfileError(Exception):
    """A mistake the caller can fix; the text is one sentence that ends with the fix."""
