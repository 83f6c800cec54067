"""Requests that hypothesis draws from an OpenAPI page: what its schemas allow, and what breaks them."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import quote, quote_plus

from hypothesis import strategies as st

from headrace.rest.client_protocol import MESSAGE
from tests.unit.rest.hostile_requests import BODIES, JSON_VALUES

METHODS: Final = {"get", "put", "post", "delete", "patch"}
SILENT_WORDS: Final = {"title", "description", "default"}
"""Words of a schema that neither allow nor forbid a value."""
INTEGER_MAX: Final = (1 << 63) - 1
TEXT_LENGTH_MAX: Final = 40
ITEMS_MAX: Final = 3
BOUNDARY: Final = "drawn"
_PLAIN = st.characters(exclude_categories=["Cs"])
BROKEN_TEXTS = st.sampled_from(
    ["-1", "1.5", "1e400", "NaN", "9" * 40, "9" * 5_000, "\u0661", "true", "null", "[]", "\0", " 1",
     "x" * 3_000, ".", "..", "../../etc/passwd", "%2F", "a,b,,c", "-,3-1", "0-999999999999"]
) | st.text(_PLAIN, min_size=1, max_size=TEXT_LENGTH_MAX)  # fmt: skip

Schema = Mapping[str, Any]
Strategies = Mapping[str, st.SearchStrategy[str]]


@dataclass(frozen=True)
class Operation:
    """One operation of a page. `content`: schemas of its body by media type, empty where it has none."""

    method: str
    path: str
    parameters: tuple[Schema, ...]
    content: Schema
    needs_body: bool
    schemas: Schema


@dataclass(frozen=True)
class DrawnRequest:
    """A request. `is_allowed`: the schemas allow its parameters and its body."""

    method: str
    target: str
    body: bytes | None
    headers: dict[str, str] = field(default_factory=dict[str, str])
    is_allowed: bool = True


def operations_of(page: Schema) -> dict[str, Operation]:
    """Return the operations of a page, by method and path such as `GET /jobs`."""
    found: dict[str, Operation] = {}
    for path, methods in page["paths"].items():
        assert set(methods) <= METHODS, path
        for method, said in methods.items():
            body = said.get("requestBody", {})
            found[f"{method.upper()} {path}"] = Operation(
                method.upper(),
                path,
                tuple(said.get("parameters", ())),
                {kind: each["schema"] for kind, each in body.get("content", {}).items()},
                body.get("required", False),
                page["components"]["schemas"],
            )
    return found


def allowed(schema: Schema, schemas: Schema) -> st.SearchStrategy[Any]:
    """Return values that a schema allows. AssertionError where it has a word that is not known here."""
    said = {word: value for word, value in schema.items() if word not in SILENT_WORDS}
    found = _allowed(said, schemas)
    assert not said, f"a schema has {sorted(said)}, which is not drawn here"
    return found


def _allowed(said: dict[str, Any], schemas: Schema) -> st.SearchStrategy[Any]:
    """Take the words that are understood out of a schema."""
    if "$ref" in said:
        return allowed(schemas[said.pop("$ref").rpartition("/")[2]], schemas)
    if "anyOf" in said:
        return st.one_of([allowed(each, schemas) for each in said.pop("anyOf")])
    kind = said.pop("type", None)
    if "enum" in said:
        return st.sampled_from(said.pop("enum"))
    match kind:
        case None:
            return JSON_VALUES
        case "null":
            return st.none()
        case "boolean":
            return st.booleans()
        case "integer":
            least, most = said.pop("minimum", -INTEGER_MAX), said.pop("maximum", INTEGER_MAX)
            most = min(most, said.pop("exclusiveMaximum", INTEGER_MAX + 1) - 1)
            # Bounds of bodies are written with a fraction, and the largest is rounded up.
            return st.integers(int(least), min(int(most), INTEGER_MAX))
        case "string":
            return _strings(said)
        case "array":
            least, most = said.pop("minItems", 0), min(said.pop("maxItems", ITEMS_MAX), ITEMS_MAX)
            return st.lists(allowed(said.pop("items"), schemas), min_size=least, max_size=most)
        case "object":
            return _objects(said, schemas)
        case _:
            raise AssertionError(f"a schema has the type {kind}, which is not drawn here")


def _strings(said: dict[str, Any]) -> st.SearchStrategy[Any]:
    if "pattern" in said:
        return st.from_regex(said.pop("pattern").removesuffix("$") + r"\Z")
    if said.get("format") == "binary":
        said.pop("format")
        return st.binary(max_size=TEXT_LENGTH_MAX)
    most = min(said.pop("maxLength", TEXT_LENGTH_MAX), TEXT_LENGTH_MAX)
    return st.text(_PLAIN, min_size=said.pop("minLength", 0), max_size=most)


def _objects(said: dict[str, Any], schemas: Schema) -> st.SearchStrategy[Any]:
    if "additionalProperties" in said:
        values = allowed(said.pop("additionalProperties"), schemas)
        return st.dictionaries(
            st.text(_PLAIN, max_size=TEXT_LENGTH_MAX), values, max_size=ITEMS_MAX
        )
    properties = {name: allowed(each, schemas) for name, each in said.pop("properties").items()}
    needed = said.pop("required", ())
    return st.fixed_dictionaries(
        {name: properties[name] for name in needed},
        optional={name: each for name, each in properties.items() if name not in needed},
    )


@st.composite
def requests_of(draw: st.DrawFn, operation: Operation, known: Strategies) -> DrawnRequest:
    """Draw a request of an operation.

    `known`: texts of parameters that the cluster has, by name. Those of a path are drawn as well as what the schema
    allows; those of a query alone, as its schemas do not say which names there are.
    """
    is_allowed = True
    path, query = operation.path, list[tuple[str, str]]()
    for parameter in operation.parameters:
        name, schema = parameter["name"], parameter["schema"]
        if parameter["in"] == "query" and not draw(st.booleans()):
            is_allowed &= not parameter.get("required", False)
            continue
        if draw(st.integers(0, 4)) == 0:
            value, is_allowed = draw(BROKEN_TEXTS), False
        elif name in known and (parameter["in"] == "query" or draw(st.booleans())):
            value = draw(known[name])
        else:
            drawn = draw(allowed(schema, operation.schemas))
            value = drawn if isinstance(drawn, str) else json.dumps(drawn)
        if parameter["in"] == "query":
            # A parameter that is null is one that is not there.
            query += [(name, value)] if value != "null" else []
        else:
            assert f"{{{name}}}" in path, f"{operation.path} has no {name}"
            path = path.replace(f"{{{name}}}", quote(value or "-", safe=""))
    assert "{" not in path, f"{operation.path} has parameters that its page does not describe"
    if query:
        path += "?" + "&".join(f"{quote_plus(name)}={quote_plus(value)}" for name, value in query)
    body, headers, is_body_allowed = _draw_body(draw, operation)
    if draw(st.integers(0, 4)) == 0:
        # Some paths have other routes for who takes messages.
        headers, is_allowed = {**headers, "Accept": MESSAGE}, False
    return DrawnRequest(operation.method, path, body, headers, is_allowed and is_body_allowed)


def _draw_body(draw: st.DrawFn, operation: Operation) -> tuple[bytes | None, dict[str, str], bool]:
    """Draw a body, its headers, and whether it is one that the schema allows."""
    if not operation.content:
        # Bodies where none is expected are ignored, and do no harm.
        return (draw(st.none() | BODIES) if operation.method != "GET" else None), {}, True
    if not draw(st.booleans()) and not operation.needs_body:
        return None, {}, True
    ((media_type, schema),) = operation.content.items()
    value = draw(allowed(schema, operation.schemas))
    way = draw(st.sampled_from(["allowed", "allowed", "broken", "hostile", "another type", "none"]))
    if way == "broken" and isinstance(value, dict) and media_type == "application/json":
        value = draw(_broken(value))
    body, content_type = _encoded(media_type, value)
    if way == "hostile":
        body = draw(BODIES)
    elif way == "another type":
        content_type = draw(
            st.sampled_from(["text/plain", MESSAGE, "multipart/form-data", "x", ""])
        )
    elif way == "none":
        return None, {}, not operation.needs_body
    return body, {"Content-Type": content_type}, way == "allowed"


def _broken(value: dict[str, Any]) -> st.SearchStrategy[Any]:
    """Return an object with fields that are missing, of another type, or unknown."""
    names = st.sampled_from(sorted(value)) if value else st.just("x")
    missing = names.map(lambda name: {each: value[each] for each in value if each != name})
    changed = st.tuples(names, JSON_VALUES).map(lambda pair: {**value, pair[0]: pair[1]})
    added = st.dictionaries(st.text(max_size=5), JSON_VALUES, max_size=2).map(
        lambda more: {**value, **more}
    )
    return missing | changed | added | JSON_VALUES


def _encoded(media_type: str, value: Any) -> tuple[bytes, str]:
    match media_type:
        case "application/json":
            return json.dumps(value).encode(), media_type
        case "application/octet-stream":
            return value, media_type
        case "multipart/form-data":
            parts = b"".join(
                b'--%b\r\nContent-Disposition: form-data; name="%b"; filename="job.py"\r\n\r\n%b\r\n'
                % (BOUNDARY.encode(), name.encode(), content)
                for name, content in value.items()
            )
            return parts + b"--%b--\r\n" % BOUNDARY.encode(), f"{media_type}; boundary={BOUNDARY}"
        case _:
            raise AssertionError(f"bodies of {media_type} are not drawn here")
