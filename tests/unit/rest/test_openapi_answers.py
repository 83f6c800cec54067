"""The check of answers against the OpenAPI page finds what is wrong with one."""

import json
from typing import Any

import pytest

from headrace.rest.app import openapi
from tests.unit.rest.openapi_answers import DocumentedAnswers, breaches
from tests.unit.rest.served_cluster import Answer

SCHEMAS = {"Count": {"type": "integer", "minimum": 1, "maximum": 5, "title": "A count"}}
ENTRY = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "pattern": "^a"},
        "state": {"enum": ["UP", "DOWN"], "type": "string"},
        "count": {"anyOf": [{"$ref": "#/components/schemas/Count"}, {"type": "null"}]},
    },
    "required": ["name"],
}
ENTRIES = {"type": "array", "items": ENTRY, "maxItems": 2}


@pytest.mark.parametrize(
    ("value", "found"),
    [
        ([], []),
        ([{"name": "a", "count": None, "state": "UP"}, {"name": "ab", "count": 5}], []),
        ({}, ["answer is no array"]),
        ([{}], ["answer[0] has no name"]),
        ([{"name": 1}], ["answer[0].name is no string"]),
        ([{"name": "b"}], ["answer[0].name does not match ^a"]),
        ([{"name": "a", "count": 6}], ["answer[0].count is not within minimum and maximum"]),
        ([{"name": "a", "count": True}], ["answer[0].count is no integer"]),
        ([{"name": "a", "state": "?"}], ["answer[0].state is '?', which is not of the choice"]),
        ([{"name": "a", "x": 1}], ["answer[0] has x, which is not described"]),
        ([{"name": "a"}] * 3, ["answer is not within minItems and maxItems"]),
    ],
)
def test_what_a_schema_does_not_allow_is_named(value: Any, found: list[str]) -> None:
    assert list(breaches(value, ENTRIES, SCHEMAS)) == found


def test_a_word_that_is_not_checked_is_an_error() -> None:
    with pytest.raises(AssertionError, match="multipleOf"):
        list(breaches(1, {"type": "integer", "multipleOf": 2}, {}))


def answer(status: int, body: Any, kind: str = "application/json; charset=UTF-8") -> Answer:
    return Answer(status, json.dumps(body).encode(), {"content-type": kind})


def test_an_answer_is_held_to_status_media_type_and_body() -> None:
    documented = DocumentedAnswers(openapi())
    path = "/jobs/{jobid}/status"
    documented.check("GET", path, answer(200, {"status": "RUNNING"}))
    documented.check("GET", path, answer(404, {"errors": ["no"]}))
    wrong = [
        answer(200, {"status": 7}),
        answer(202, {"status": "RUNNING"}),
        answer(404, {"error": "no"}),
        answer(200, {"status": "RUNNING"}, "text/plain"),
    ]
    for each in wrong:
        with pytest.raises(AssertionError):
            documented.check("GET", path, each)
