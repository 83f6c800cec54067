"""The page of all routes, which works without a network."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.rest.app import openapi
from headrace.rest.openapi_page import openapi_page
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
