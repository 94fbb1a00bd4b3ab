"""Pages of the app for tests of results."""

from tests.audit.ui.conftest import show

__all__ = ["show"]
