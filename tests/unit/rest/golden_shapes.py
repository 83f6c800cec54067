"""Golden shapes of REST answers, and the check of an answer against one.

`golden_shapes.json` has, by method and path, the status and the shape of an answer: objects with all their fields,
arrays with each shape that an element may have, `number`, `text`, `bool` or `null`.
"""

import ast
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from headrace.rest.routes import ROUTES

GOLDEN: Final[dict[str, Any]] = json.loads(
    (Path(__file__).parent / "golden_shapes.json").read_text()
)

NOT_ALWAYS: Final = frozenset(
    (
        "attempt-number", "data", "discarded", "endpoint", "external_path", "failure_message", "failure_timestamp",
        "taskManagerId", "taskName",
    )
)  # fmt: skip
"""Fields that some elements of an array have, or some answers."""
KEYED_BY_DATA: Final = frozenset(("settings", "tasks", "user-config"))
"""Fields whose own fields are named by a job: its settings, its vertices."""
OF_DATA: Final = frozenset(("values",))
"""Fields that hold what is in the state of a job."""


def shape(value: Any) -> Any:
    """Return an answer with kinds in the place of values."""
    match value:
        case dict():
            fields: dict[str, Any] = value
            return {key: shape(each) for key, each in fields.items()}
        case list():
            elements: list[Any] = value
            shapes: list[Any] = []
            for each in map(shape, elements):
                if each not in shapes:
                    shapes.append(each)
            return shapes
        case bool():
            return "bool"
        case int() | float() | "NaN":
            return "number"
        case None:
            return "null"
        case _:
            return "text"


def is_like(found: Any, golden: Any) -> bool:
    """Return whether a shape is the golden one: an array has some of its elements, in any order, unless it has none."""
    if isinstance(found, list) and isinstance(golden, list):
        arrays: list[Any] = found
        return bool(arrays) == bool(golden) and all(  # type: ignore[reportUnknownArgumentType]
            any(is_like(each, one) for one in golden)  # type: ignore[reportUnknownVariableType]
            for each in arrays
        )
    if isinstance(found, dict) and isinstance(golden, dict):
        fields: dict[str, Any] = found
        return fields.keys() == golden.keys() and all(  # type: ignore[reportUnknownMemberType]
            is_like(each, golden[key]) for key, each in fields.items()
        )
    return found == golden


def differences(found: Any, golden: Any, place: str = "") -> Iterator[str]:
    """Yield where the shape of an invented answer is none that the route gives.

    Anything may be null or empty in it, or in the golden one.
    """
    field = place.rpartition(".")[2]
    if field in OF_DATA:
        return
    if isinstance(found, list) and isinstance(golden, list):
        ones: list[Any] = golden
        arrays: list[Any] = found
        for each in arrays if ones else []:
            yield from min((list(differences(each, one, f"{place}[]")) for one in ones), key=len)
    elif isinstance(found, dict) and isinstance(golden, dict):
        fields: dict[str, Any] = found
        expected: dict[str, Any] = golden
        if field in KEYED_BY_DATA:
            yield from differences(list(fields.values()), list(expected.values()), place)
            return
        for key in sorted((fields.keys() ^ expected.keys()) - NOT_ALWAYS):
            yield f"{place}.{key} is {'not known' if key in fields else 'missing'}"
        for key in fields.keys() & expected.keys():
            yield from differences(fields[key], expected[key], f"{place}.{key}")
    elif found != golden and "null" not in (found, golden):
        yield f"{place} is {json.dumps(found)} and not {json.dumps(golden)}"


def assert_golden(route: str, content: Any, status: int | None = None) -> None:
    """Fail unless this is the JSON, or the type of another answer, that the route gives, and its status if given.

    `route`: a name of the table, written out, so that a search over the tests finds who asserts it.
    """
    golden = GOLDEN[route]
    found = content if isinstance(content, str) else shape(content)
    assert status in (None, golden["status"]), (route, status)
    assert is_like(found, golden["answer"]), f"{route}: {json.dumps(found)}"


def is_route(line: str) -> bool:
    """Return whether a request, `GET /jobs/ab`, is for a route of the table."""
    return any(
        re.fullmatch(re.sub(r"{\w+}", "[^/]+", f"{route.method} {route.path}"), line)
        for route in ROUTES
    )


def asserted_routes(file: Path) -> set[str]:
    """Return the routes that are named in calls of `assert_golden` in a file of tests."""
    text = file.read_text()
    if assert_golden.__name__ not in text:
        return set()
    return {
        call.args[0].value
        for call in ast.walk(ast.parse(text))
        if isinstance(call, ast.Call)
        and isinstance(call.func, ast.Name)
        and call.func.id == assert_golden.__name__
        and isinstance(call.args[0], ast.Constant)
        and isinstance(call.args[0].value, str)
    }
