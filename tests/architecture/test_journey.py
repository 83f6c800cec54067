"""The walks of docs/journey.md lead through files and functions that there are, and are counted as they are."""

import ast

import pytest

from tests.architecture.walks import is_forward, walks


def test_the_page_walks_with_a_record_a_barrier_and_a_restart() -> None:
    assert [walk.name for walk in walks()] == ["record", "barrier", "restart"]
    assert all(len(walk.steps) > 20 for walk in walks())


def test_every_step_is_a_function_in_its_file_and_the_counts_are_right() -> None:
    assert [line for walk in walks() for line in walk.wrong()] == []


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ('"""Say."""\n    self._next.go(1)', True),
        ("self._put(attempt_id, Acknowledged(1))", True),
        ("await self._next.go(1)\n    return Acknowledge()", True),
        ("return self._next.go(1)", True),
        ("self._next.go(compute(1))", False),
        ("if self._next: self._next.go(1)", False),
        ("self._count += 1\n    self._next.go(1)", False),
        ("return 1", False),
    ],
)
def test_a_forward_is_a_function_that_only_calls_another_one(body: str, expected: bool) -> None:
    function = ast.parse(f"async def step(self):\n    {body}\n").body[0]
    assert isinstance(function, ast.AsyncFunctionDef)
    assert is_forward(function) is expected
