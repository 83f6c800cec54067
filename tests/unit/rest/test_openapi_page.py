"""The page of all routes, which works without a network."""

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
from tests.unit.rest.served_cluster import ServedCluster, served_cluster


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
