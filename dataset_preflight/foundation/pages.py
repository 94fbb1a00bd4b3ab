"""HTML pages of both programs: templates in one frame, with one style and one security policy.

A page is one file without scripts. Its environment escapes all values, and its policy forbids loads
but inline styles and data URIs. Text has a contrast of 4.5 to 1 (WCAG 2.2, 1.4.3).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jinja2 import Environment

POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"


def render_page(template: str, shown: Callable[[str], str], **values: Any) -> str:
    """Return the template (package and path) with its values; `shown` escapes controls."""
    return _environment(shown).get_template(template).render(policy=POLICY, **values)


def read_template(name: str) -> str:
    """Return the text of a template or style sheet, by its package and path."""
    package, _, path = name.partition("/")
    return files(package).joinpath(path).read_text(encoding="utf-8")


@cache
def _environment(shown: Callable[[str], str]) -> Environment:
    from jinja2 import Environment, FunctionLoader, StrictUndefined

    def visible(value: Any) -> Any:
        plain = isinstance(value, str) and not hasattr(value, "__html__")
        return shown(value) if plain else value

    environment = Environment(
        loader=FunctionLoader(read_template), autoescape=True, finalize=visible,
        undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True,
    )  # fmt: skip
    environment.filters["commas"] = "{:,}".format
    return environment
