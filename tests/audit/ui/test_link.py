"""Links of the app: any state, written into a link and read back, is the same state."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from urllib.parse import parse_qsl, urlencode

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from audit.errors import UsageError
from audit.results.filters import Between, Contains, OneOf, from_link, to_link
from audit.results.images import Edge
from audit.ui import link

NAMES = st.sampled_from(["run", "code", "split", "class", "q", "finding", "image", "where", "rule"])
NUMBERS = st.floats(allow_nan=False)
TEXTS = st.text(max_size=12)
CONDITIONS = st.one_of(
    st.builds(Between, TEXTS, NUMBERS, NUMBERS),
    st.builds(OneOf, TEXTS, st.lists(st.none() | TEXTS, max_size=4).map(tuple)),
    st.builds(Contains, TEXTS, TEXTS),
)
PATIENT = settings(max_examples=50, derandomize=True)


class Address:
    """The parameters of the page's address; `reload` is what a bookmark or a colleague opens."""

    def __init__(self) -> None:
        self.query_params: dict[str, str] = {}
        self.session_state: dict[str, object] = {}

    def reload(self) -> None:
        sent = urlencode(self.query_params)
        self.query_params = dict(parse_qsl(sent, keep_blank_values=True))


@pytest.fixture
def address(monkeypatch: pytest.MonkeyPatch) -> Iterator[Address]:
    one = Address()
    monkeypatch.setattr(link, "st", one)
    return one


@given(state=st.dictionaries(NAMES, st.text()))
@PATIENT
def test_any_values_come_back(address: Address, state: dict[str, str]) -> None:
    address.query_params = {"run": "of before", "start": "abc"}
    link.put(**dict.fromkeys(("run", "start")))
    assert address.query_params == {}
    link.put(**state)
    address.reload()
    assert {name: link.get(name) for name in state} == state
    assert set(address.query_params) == {name for name, value in state.items() if value}


@given(
    options=st.lists(st.text(min_size=1), min_size=1, max_size=5, unique=True),
    any_=st.booleans(),
    chosen=st.integers(0, 4),
    named=TEXTS,
)
@PATIENT
def test_any_option_comes_back_and_an_unknown_one_is_the_first(
    address: Address, options: list[str], any_: bool, chosen: int, named: str
) -> None:
    options = ["", *options] if any_ else options  # "" stands for any, and comes first
    option = options[chosen % len(options)]
    address.query_params = {}
    link.put_unless_default("view", option, options[0])
    address.reload()
    assert link.chosen_option("view", options) == option
    address.query_params = {"view": named}
    assert link.chosen_option("view", options) == (named if named in options else options[0])


@given(number=st.floats(0.5, 20.0), whole=st.integers(2, 10**6), damaged=st.text())
@PATIENT
def test_any_number_in_reach_comes_back_and_nothing_else_does(
    address: Address, number: float, whole: int, damaged: str
) -> None:
    address.query_params = {}
    link.put_unless_default("half", number, 5.0)
    link.put_unless_default("n", whole, 10)
    address.reload()
    assert link.number_of("half", 0.5, 20.0, 5.0) == number
    assert link.number_of("n", 2, 10**6, 10) == whole
    for text in (damaged, "inf", "nan", "1e999", "21"):
        address.query_params = {"half": text, "n": text}
        assert 0.5 <= link.number_of("half", 0.5, 20.0, 5.0) <= 20.0
        assert 2 <= link.number_of("n", 2, 10**6, 10) <= 10**6


@given(conditions=st.lists(CONDITIONS, max_size=4))
@PATIENT
def test_any_filter_comes_back(address: Address, conditions: list[Between]) -> None:
    address.query_params = {}
    link.put(where=to_link(conditions))
    address.reload()
    assert from_link(link.get("where")) == tuple(conditions)


@given(value=st.none() | st.booleans() | st.integers() | NUMBERS | TEXTS, name=TEXTS)
@PATIENT
def test_the_edge_of_any_page_comes_back(address: Address, value: object, name: str) -> None:
    edge = Edge(value, name)
    address.query_params = {}
    link.put(after=edge.to_link())
    address.reload()
    assert Edge.from_link(link.get("after")) == edge


@pytest.mark.slow
@given(text=st.text() | st.recursive(NUMBERS | TEXTS, st.lists).map(str))
@PATIENT
def test_a_damaged_link_is_one_sentence(text: str) -> None:
    with contextlib.suppress(UsageError):
        from_link(text)
    with contextlib.suppress(UsageError):
        Edge.from_link(text)


@pytest.mark.parametrize("text", ['[["width","between",1' + "0" * 400 + ",2]]", "[" * 50_000])
def test_a_link_that_no_number_or_nesting_can_hold_is_one_sentence(text: str) -> None:
    with pytest.raises(UsageError, match="clear the filters"):
        from_link(text)
