"""The page of all routes, which works without a network, and the check that finds answers unlike their description."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from types import NoneType
from typing import Any, get_args, get_type_hints

import pytest

from headrace.rest.app import openapi
from headrace.rest.openapi_page import openapi_page
from headrace.rest.rest_route import RestRoute
from headrace.rest.routes import ROUTES
from tests.unit.rest.openapi_answers import DocumentedAnswers, breaches
from tests.unit.rest.served_cluster import Answer, ServedCluster, served_cluster


@pytest.fixture(scope="module")
def page() -> str:
    return openapi_page(openapi())


def test_every_route_has_its_place(page: str) -> None:
    shown = set(re.findall(r"<b>(\w+)</b> <code>([^<]+)</code>", page))
    assert shown == {(each.method, each.path) for each in ROUTES if not each.is_message}


def test_every_type_that_is_named_is_described(page: str) -> None:
    named = set(re.findall(r'<a href="#(\w+)">', page))
    assert named <= set(re.findall(r'<details id="(\w+)"', page))
    assert "JobDetailsInfo" in named


def test_nothing_is_loaded_or_run(page: str) -> None:
    assert "<script" not in page and "//" not in re.sub(r"<p>.*?</p>", "", page, flags=re.DOTALL)
    assert set(re.findall(r'(?:src|href)="([^#"][^"]*)"', page)) == {"openapi.json"}


def test_texts_of_a_description_are_no_markup() -> None:
    operation = {"summary": "<i>", "responses": {"200": {"description": "<script>"}}}
    info = {"title": "<b>", "version": "1"}
    text = openapi_page({"info": info, "paths": {"/<x>": {"get": operation}}})
    assert "<script>" not in text and "<i>" not in text and "/<x>" not in text


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[ServedCluster]:
    with pytest.MonkeyPatch.context() as patch, served_cluster(tmp_path, patch) as served:
        yield served


def test_it_is_served_to_who_knows_the_token(cluster: ServedCluster) -> None:
    assert cluster.ask("GET", "/docs", headers={}).status == 401
    answer = cluster.get("/docs")
    assert (answer.status, answer.headers["content-type"]) == (200, "text/html; charset=utf-8")
    assert b"/jobs/{jobid}/checkpoints" in answer.body


def body_that_is_read(route: RestRoute) -> Any:
    """Return the type of the body that a handler declares, None where it declares none."""
    declared = get_type_hints(route.handler).get("body")
    return next((each for each in get_args(declared) if each is not NoneType), declared)


def test_the_table_has_the_body_that_each_handler_reads() -> None:
    # They read what is no JSON themselves.
    own = {"upload_jar", "put_blob_chunk"}
    for route in ROUTES:
        if not route.is_message and route.handler.__name__ not in own:
            assert route.request == body_that_is_read(route), route.path


def test_every_body_is_described(page: str) -> None:
    described = openapi()["paths"]
    for route in ROUTES:
        if not route.is_message:
            operation = described[route.path][route.method.lower()]
            assert ("requestBody" in operation) is (route.request is not None), route.path
    form = described["/jars/upload"]["post"]["requestBody"]["content"]["multipart/form-data"]
    assert form["schema"]["required"] == ["jarfile"]


def test_the_table_knows_what_stands_behind_the_question_mark() -> None:
    described = openapi()["paths"]
    for route in ROUTES:
        if not route.is_message:
            parameters = described[route.path][route.method.lower()].get("parameters", [])
            assert set(route.query) == {one["name"] for one in parameters if one["in"] == "query"}


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
