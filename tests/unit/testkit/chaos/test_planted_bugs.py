"""Planted bugs: each can still be planted, and is looked for in runs that there are."""

import inspect
from typing import Any

import pytest

from testkit.chaos import planted_bugs
from testkit.chaos.planted_bugs import BUGS
from testkit.chaos.searches import SEARCHES


def test_each_bug_is_looked_for_in_runs_that_there_are() -> None:
    assert set(SEARCHES) == set(BUGS)
    for search in SEARCHES.values():
        names = {*search.group.plays, *(one.name for one in search.group.scenarios)}
        assert {*search.run_names} <= names


@pytest.mark.parametrize("name", sorted(BUGS))
def test_each_bug_can_still_be_planted(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    replaced: list[tuple[Any, str]] = []

    def note(owner: Any, attribute: str, function: Any) -> None:
        parameters = inspect.signature(getattr(owner, attribute)).parameters.values()
        named = {one.name: None for one in parameters if one.kind is one.KEYWORD_ONLY}
        positional = [None for one in parameters if one.kind is one.POSITIONAL_OR_KEYWORD]
        inspect.signature(function).bind(*positional, **named)
        replaced.append((owner, attribute))

    monkeypatch.setattr(planted_bugs, "_replace", note)
    BUGS[name]()
    assert len(replaced) == 1


def test_there_are_at_least_ten_bugs() -> None:
    assert len(BUGS) >= 10
