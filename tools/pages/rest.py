"""rest.md and openapi.json: the routes of the REST API, from the table that the server is made of."""

import json
from typing import Any, Final, get_args, get_origin

from headrace.rest.app import openapi
from headrace.rest.rest_route import RestRoute
from headrace.rest.routes import ROUTES
from tools.pages.markdown import table

_INTRODUCTION: Final = """\
# REST routes

The table of `headrace/rest/routes.py`. Paths, fields and errors are Flink's REST API v1; every path exists with the
prefix `/v1` as well. Requests show the token of the cluster: `Authorization: Bearer <token>`; it is in the connection
file that `headrace run` names. Answers that are "kept" are written once for each `web.refresh-interval`, however many
ask. "query" names what may stand behind the `?`; a body may be left out where all its
fields may be. "archived" ones are answered for ended jobs too. Routes with a "message" are for clients that send
`Accept: application/msgpack`, such as Headrace's own: they answer with the gateways' messages as msgpack, and to such
clients an error of any route is a `RemoteFailure`, from which its class is made again. All others are answered with
Flink's JSON, and with `errors`. [openapi.json](openapi.json) has all fields of all answers;
a cluster shows the same at `/docs`, to who has signed in, as a page that loads nothing from elsewhere.
"""

_CONSTANTS: Final = """\

## Fields that never change

Flink's clients look for these fields; here they say the same always. The dashboard shows none of them.
"""
_CONSTANT_FIELDS: Final = (
    ("checkpoints", "`alignment_buffered`, `buffered`", "0", "As in Flink: aligning stores nothing."),
    ("exceptions", "`failureLabels`", "`{}`", "Flink's failure enrichers, which label failures, are Java plug-ins."),
    ("TaskManagers", "`mappedCount`, `mappedUsed`, `mappedMax`", "0", "Python keeps no account of mapped files."),
    ("TaskManagers", "`directCount`", "0", "Arrow counts the bytes that it holds (`directUsed`), not the buffers."),
    ("TaskManagers", "`jvmMetaspace`", "0", "Modules lie in the memory of the interpreter."),
    ("TaskManagers", "`nonHeapMax`, `jmxPort`", "-1", "Arrow has no bound of its own; there is no JMX."),
    ("jobs", "`isStoppable`, `pending-operators`", "`false`, 0", "As in Flink, with the default scheduler."),
)  # fmt: skip


def rest_page() -> str:
    """Return a table of all routes, and one of fields with a constant value."""
    rows = [
        (
            f"{route.method} `{route.path}`",
            (route.handler.__doc__ or "").partition("\n")[0],
            ", ".join(f"`{name}`" for name in route.query),
            _request(route),
            _answer(route),
            str(route.status),
            "yes" if route.is_kept else "",
            "yes" if route.is_archived else "",
        )
        for route in ROUTES
    ]
    headings = ("route", "what it does", "query", "body", "answer", "status", "kept", "archived")
    constants = table(("of", "fields", "always", "why"), _CONSTANT_FIELDS)
    return "\n".join([_INTRODUCTION, *table(headings, rows), _CONSTANTS, *constants, ""])


def openapi_page() -> str:
    """Return the OpenAPI description."""
    return json.dumps(openapi(), indent=1, sort_keys=True) + "\n"


def _request(route: RestRoute) -> str:
    if route.request is None:
        return ""
    return f"message {_name(route.request)}" if route.is_message else _name(route.request)


def _answer(route: RestRoute) -> str:
    if route.answer is None:
        return "`{}`, and a cookie" if route.path == "/session" else "text, or a page"
    if route.is_message:
        return f"message {_name(route.answer)}"
    return _name(route.answer)


def _name(answer: Any) -> str:
    if answer is type(None):
        return "nothing"
    if get_origin(answer) is dict:
        return "numbers by name"
    if get_origin(answer) in (list, tuple):
        return f"list of `{get_args(answer)[0].__name__}`"
    if get_args(answer):
        return " or ".join(_name(one) for one in get_args(answer))
    return f"`{answer.__name__}`"
