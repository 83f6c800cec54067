"""Answers held to an OpenAPI page: their statuses, and their bodies to the schemas of those."""

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from headrace.rest.client_protocol import MESSAGE
from tests.unit.rest.hostile_requests import assert_answered
from tests.unit.rest.openapi_requests import SILENT_WORDS, Schema
from tests.unit.rest.served_cluster import Answer

KINDS: Final[dict[str, tuple[type, ...]]] = {
    "null": (type(None),),
    "boolean": (bool,),
    "integer": (int,),
    "number": (int, float),
    "string": (str,),
    "array": (list,),
    "object": (dict,),
}


class DocumentedAnswers:
    """The answers that a page has for each route; the server gives the page out itself."""

    def __init__(self, page: Schema) -> None:
        self._paths: Final[Schema] = page["paths"]
        self._schemas: Final[Schema] = page["components"]["schemas"]

    def check(self, method: str, path: str, answer: Answer) -> None:
        """Assert that an answer is one that is described, with a body as its schema says."""
        assert_answered(path, answer)
        if answer.headers.get("content-type") == MESSAGE:
            return
        # A path of messages alone is not described, and not there for who takes none.
        known = self._responses(method, path) or {"4XX": _ERROR}
        described = known.get(str(answer.status)) or known.get(f"{answer.status // 100}XX")
        assert described is not None, (method, path, answer.status, list(known))
        schema = described["content"]["application/json"]["schema"]
        if schema:
            kind = answer.headers.get("content-type", "").partition(";")[0]
            assert kind == "application/json", (method, path, answer.status, kind)
            wrong = list(breaches(answer.json, schema, self._schemas))
            assert wrong == [], (method, path, answer.status, wrong[:3], answer.body[:500])

    def statuses(self, method: str, path: str) -> list[str]:
        """Return statuses of a route, with `4XX` for all of them; empty where the route is not described."""
        return list(self._responses(method, path))

    def _responses(self, method: str, path: str) -> Mapping[str, Any]:
        return self._paths.get(path, {}).get(method.lower(), {}).get("responses", {})


_UNCHECKED: Final = SILENT_WORDS | {"readOnly"}
_ERROR: Final = {
    "content": {"application/json": {"schema": {"$ref": "#/components/schemas/ErrorBody"}}}
}


def breaches(value: Any, schema: Schema, schemas: Schema, where: str = "answer") -> Iterator[str]:
    """Yield what a value has that its schema does not allow. AssertionError where a word is not known here.

    A field that the schema does not name breaches it too: nobody could know of it.
    """
    said = {word: each for word, each in schema.items() if word not in _UNCHECKED}
    if "$ref" in said:
        name = said.pop("$ref").rpartition("/")[2]
        yield from breaches(value, schemas[name], schemas, where)
    if "anyOf" in said:
        kinds = [list(breaches(value, each, schemas, where)) for each in said.pop("anyOf")]
        yield from min(kinds, key=len)
    if "type" in said:
        kind = said.pop("type")
        # A boolean is an integer of Python, and none of JSON.
        is_kind = isinstance(value, KINDS[kind]) and isinstance(value, bool) == (kind == "boolean")
        if not is_kind:
            yield f"{where} is no {kind}"
    yield from _bounds(value, said, where)
    if "items" in said:
        inner = said.pop("items")
        for position, each in enumerate(value if isinstance(value, list) else ()):
            yield from breaches(each, inner, schemas, f"{where}[{position}]")
    fields, needed = said.pop("properties", None), said.pop("required", ())
    others = said.pop("additionalProperties", fields is None)
    if isinstance(value, dict):
        yield from (f"{where} has no {name}" for name in needed if name not in value)
        for name, each in value.items():
            inner = (fields or {}).get(name, others)
            if inner is False:
                yield f"{where} has {name}, which is not described"
            elif inner is not True:
                yield from breaches(each, inner, schemas, f"{where}.{name}")
    assert not said, f"a schema has {sorted(said)}, which is not checked here"


def _bounds(value: Any, said: dict[str, Any], where: str) -> Iterator[str]:
    """Take words for bounds out of a schema, and yield which of them do not hold."""
    if value not in said.pop("enum", [value]):
        yield f"{where} is {value!r}, which is not of the choice"
    pattern = said.pop("pattern", None)
    if pattern is not None and isinstance(value, str) and not re.search(pattern, value):
        yield f"{where} does not match {pattern}"
    size = len(value) if isinstance(value, (str, list)) else value
    for least, most in (
        ("minimum", "maximum"),
        ("minLength", "maxLength"),
        ("minItems", "maxItems"),
    ):
        low, high = said.pop(least, None), said.pop(most, None)
        if isinstance(size, (int, float)) and (
            (low is not None and size < low) or (high is not None and size > high)
        ):
            yield f"{where} is not within {least} and {most}"
