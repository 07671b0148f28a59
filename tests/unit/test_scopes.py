"""Scopes in a profile: the names that a client may use, and the laws of prefixes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from threadcast.chat.scopes import (
    TOP,
    Scope,
    is_declared,
    is_within,
    nearest,
    path_of,
    prefixes,
    read_scope,
    scope_at,
    scope_of_page,
)

names = st.sampled_from(["a", "b", "c.d", "e-f"])
scopes: st.SearchStrategy[Scope] = st.lists(names, max_size=3).map(tuple)
declarations = st.frozensets(scopes.filter(bool), max_size=6)


@given(scopes)
def test_a_scope_is_read_as_a_list_or_as_a_path(scope: Scope) -> None:
    assert read_scope(list(scope)) == scope
    if scope:
        assert read_scope(path_of(scope)) == scope


@pytest.mark.parametrize(
    "value",
    [None, 7, "", {}, "a//b", "/a", "a/b/c/d", ["a", 1], ["a b"], ["a/b"], ["x" * 65], ["a", ""], ("a",), ["a\n"]],
)
def test_what_is_no_scope_is_none(value: object) -> None:
    assert read_scope(value) is None


@given(scopes, scopes)
def test_to_be_within_a_place_is_to_have_it_as_a_prefix(scope: Scope, place: Scope) -> None:
    assert is_within(scope, place) == (place in prefixes(scope))
    assert prefixes(scope)[0] == TOP and prefixes(scope)[-1] == scope


@given(scopes, declarations)
def test_the_nearest_place_is_the_longest_declared_prefix(scope: Scope, declared: frozenset[Scope]) -> None:
    found = nearest(scope, declared)
    longer = [prefix for prefix in prefixes(scope) if len(prefix) > len(found)]
    assert is_within(scope, found)
    assert found == TOP or is_declared(found, declared)
    assert not any(is_declared(prefix, declared) for prefix in longer)
    assert nearest(found, declared) == found


@given(scopes)
def test_where_nothing_is_declared_every_place_may_be_meant(scope: Scope) -> None:
    assert nearest(scope, {}) == scope


def test_a_place_around_a_declared_one_is_declared_with_it_and_one_inside_is_not() -> None:
    declared = {("reports", "articles")}
    assert nearest(("reports",), declared) == ("reports",)
    assert nearest(("reports", "articles", "draft"), declared) == ("reports", "articles")
    assert nearest(("reports", "tables"), declared) == ("reports",)
    assert nearest(("sales", "articles"), declared) == TOP


@pytest.mark.row("OLD-3")
@given(st.lists(st.text() | st.integers() | st.floats() | st.none() | st.booleans() | st.lists(st.text()), max_size=4))
def test_whatever_a_page_calls_itself_is_a_place_and_the_same_words_are_the_same_place(names: list[object]) -> None:
    place = scope_of_page(names)
    assert len(place) <= 3
    assert not place or read_scope(list(place)) == place
    assert scope_at(path_of(place)) == place
    assert scope_of_page(f" /{name}/ " if isinstance(name, str) else name for name in names) == place


@pytest.mark.row("OLD-3")
@pytest.mark.parametrize(
    ("names", "place"),
    [
        (["reports", "articles", "pubmed"], ("reports", "articles", "pubmed")),
        (["/Drug search", " Results\u00a02 ", 7], ("Drug_search", "Results_2", "7")),
        (["/patients/42/labs", "blood"], ("patients", "42", "labs")),
        (["Отчёты", "報告", "a\x00b"], ("Отчёты", "報告", "a_b")),
        (["x" * 100, None, "tab"], ("x" * 64, "tab")),
        ([{"id": 1}, ["a"], True, "", "/"], ()),
    ],
)
def test_names_of_pages_are_made_fit(names: list[object], place: Scope) -> None:
    assert scope_of_page(names) == place
