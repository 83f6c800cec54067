"""The application of the REST endpoint: the routes, Flink's error format and the dashboard's files."""

import functools
import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec
from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse
from fastapi.routing import APIRoute
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.routing import Match
from starlette.types import Scope

from headrace import __version__
from headrace.core.config import Settings
from headrace.core.error_codec import encode_error
from headrace.core.errors import ConfigurationError, HeadraceError
from headrace.core.process.process_profiler import PROFILING_HISTORY_SIZE, ProcessProfiler
from headrace.gateways.errors import (
    DuplicateJobSubmissionError,
    JobAlreadyEndedError,
    NothingCollectedError,
    NotLeadingError,
    UnknownJobError,
    UnknownOperatorError,
)
from headrace.rest.authentication import (
    AsgiApplication,
    BodyTooLongError,
    GuardedApplication,
    RestGuard,
)
from headrace.rest.client_protocol import MESSAGE, takes_messages
from headrace.rest.cluster_view import ClusterView
from headrace.rest.flame_graph_sampler import FlameGraphSampler
from headrace.rest.handler_errors import HandlerError, internal_error
from headrace.rest.handlers.spark_page import SPARK_PAGE, spark_page
from headrace.rest.kept_answers import KeptAnswers
from headrace.rest.models.cluster import ErrorBody
from headrace.rest.models.jars import JarUploadForm
from headrace.rest.openapi_page import openapi_page
from headrace.rest.operations import Operations
from headrace.rest.options import DASHBOARD_DIRECTORY
from headrace.rest.programs.program_runs import ProgramService
from headrace.rest.rest_route import RestRoute
from headrace.rest.routes import ROUTES
from headrace.rest.state.read_limit import StateReadLimit
from headrace.rest.static_files import OWN_PAGE, StaticFiles

_LOG: Final = logging.getLogger(__name__)
JSON: Final = "application/json; charset=UTF-8"
VERSION_PREFIX: Final = "/v1"
ROUTES_PAGE: Final = "/docs"
"""Address of the page that describes all routes."""
_ERRORS: Final[dict[int | str, str]] = {
    "4XX": "The request cannot be fulfilled.",
    500: "A part of the cluster failed to answer.",
    503: "A part of the cluster does not answer at the moment; the same request may succeed later.",
}
"""Error answers of all routes, for the description."""
_PLAIN_TYPES: Final = ("application/x-www-form-urlencoded", "text/plain")
"""Content types that `curl -d` and browsers send by default; no route expects one of them."""
_DASHBOARD: Final = Path(__file__).parent / "dashboard"


def create_app(
    cluster: ClusterView,
    guard: RestGuard,
    operations: Operations,
    programs: ProgramService,
) -> AsgiApplication:
    """Return the application of a cluster behind its guard."""
    settings, clock = cluster.settings, cluster.clock
    state = {
        "cluster": cluster,
        "operations": operations,
        "programs": programs,
        "flame_graphs": FlameGraphSampler(settings, clock, cluster.stack_samples),
        "profiler": ProcessProfiler(
            "jobmanager", clock, settings.get_option(PROFILING_HISTORY_SIZE)
        ),
        "answers": KeptAnswers(clock),
        "state_reads": StateReadLimit(),
    }
    has_spark_page = cluster.spark_page is not None
    return guarded_app(ROUTES, guard, settings, state, has_spark_page=has_spark_page)


def guarded_app(
    routes: tuple[RestRoute, ...],
    guard: RestGuard,
    settings: Settings,
    state: Mapping[str, Any],
    *,
    has_spark_page: bool = False,
) -> AsgiApplication:
    """Return the application of some routes and the dashboard, behind its guard. `state`: objects for the handlers."""
    app = _routed(routes)
    for name, value in {**state, "guard": guard}.items():
        setattr(app.state, name, value)
    app.add_exception_handler(HTTPException, _not_found)
    app.add_exception_handler(RequestValidationError, _unparsable)
    app.add_exception_handler(Exception, _failed)
    replacement = settings.get_option(DASHBOARD_DIRECTORY)
    files = StaticFiles(_DASHBOARD, Path(replacement) if replacement else None)
    for path in files.paths:
        app.add_api_route(path, files.answer, methods=["GET"], include_in_schema=False)
    app.add_api_route(ROUTES_PAGE, _routes_page, methods=["GET"], include_in_schema=False)
    if has_spark_page:
        app.router.add_api_route(
            SPARK_PAGE + "/{path:path}",
            spark_page,
            methods=["GET"],
            include_in_schema=False,
            route_class_override=_AnsweringRoute,
        )
    return GuardedApplication(app, guard, files.has, OWN_PAGE if replacement else "")


def openapi() -> dict[str, Any]:
    """Return the OpenAPI description of all routes."""
    return _routed(ROUTES).openapi()


async def _routes_page(request: Request) -> Response:
    return HTMLResponse(openapi_page(request.app.openapi()))


def _routed(routes: tuple[RestRoute, ...]) -> FastAPI:
    app = FastAPI(
        title="Headrace REST API",
        version=__version__,
        description="Flink's REST API, answered by a Headrace cluster.",
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
    )
    for route in routes:
        _add(app, route)
    return app


def _add(app: FastAPI, route: RestRoute) -> None:
    for prefix in ("", VERSION_PREFIX):
        is_described = not prefix and not route.is_message
        app.router.add_api_route(
            f"{prefix}{route.path}",
            _answering(route),
            methods=[route.method],
            status_code=route.status,
            response_model=None,
            # Each described body needs a schema, and there would be more than a thousand.
            responses=_described(route) if is_described else None,
            name=_operation(route) + prefix.replace("/", "_"),
            summary=(route.handler.__doc__ or "").partition("\n")[0],
            include_in_schema=is_described,
            route_class_override=_class_of(route),
            openapi_extra={**_unread_parameters(route), **_body_without_json(route)},
        )


def _operation(route: RestRoute) -> str:
    return f"{route.method.lower()}_{route.handler.__name__}"


def _described(route: RestRoute) -> dict[int | str, dict[str, Any]]:
    errors: dict[int | str, dict[str, Any]] = {
        status: {"model": ErrorBody, "description": text} for status, text in _ERRORS.items()
    }
    if route.answer is None or route.is_message:
        return errors
    return {**errors, route.status: {"model": route.answer}}


def _unread_parameters(route: RestRoute) -> dict[str, Any]:
    """Return the description of path parameters that the handler does not read."""
    said = {"in": "path", "required": True, "schema": {"type": "string"}}
    return {"parameters": [{"name": name, **said} for name in route.unread]} if route.unread else {}


def _body_without_json(route: RestRoute) -> dict[str, Any]:
    """Return the description of a body that its handler reads itself."""
    if route.request not in (bytes, JarUploadForm):
        return {}
    content: dict[str, Any] = {"schema": {"type": "string", "format": "binary"}}
    if route.request is bytes:
        return {"requestBody": {"required": True, "content": {"application/octet-stream": content}}}
    fields = {name: content["schema"] for name in JarUploadForm.model_fields}
    said = {"type": "object", "description": (JarUploadForm.__doc__ or "").strip()}
    form = {**said, "properties": fields, "required": list(fields)}
    return {"requestBody": {"required": True, "content": {"multipart/form-data": {"schema": form}}}}


def _answering(route: RestRoute) -> Callable[..., Awaitable[Response]]:
    """Return the handler of a route, wrapped so that it writes its answer."""

    @functools.wraps(route.handler)
    async def endpoint(*args: Any, **kwargs: Any) -> Response:
        found = await route.handler(*args, **kwargs)
        if isinstance(found, Response):
            return found
        media_type = MESSAGE if route.is_message else JSON
        return Response(route.written(found), route.status, media_type=media_type)

    return endpoint


def _class_of(route: RestRoute) -> type[APIRoute]:
    if route.is_message:
        return _MessageRoute
    return _KeptRoute if route.is_kept else _AnsweringRoute


class _AnsweringRoute(APIRoute):
    """A route that turns the errors of its handler into answers."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Return the handler; it raises only errors that the whole application answers."""
        write = super().get_route_handler()

        async def answer(request: Request) -> Response:
            try:
                return await write(_with_json(request))
            except (HTTPException, RequestValidationError):
                raise
            except (ClientDisconnect, BodyTooLongError):
                # Nobody reads this: the client is gone, or the guard sends its own answer.
                return _errors(400, "The body ended early.")
            except Exception as error:
                return _error_answer(error, is_message=takes_messages(request.headers))

        return answer


def _with_json(request: Request) -> Request:
    """Return the request with its body declared as JSON if its type is missing or in _PLAIN_TYPES, as in Flink."""
    content_type = request.headers.get("content-type", "")
    if content_type and not content_type.lower().startswith(_PLAIN_TYPES):
        return request
    headers = [(name, value) for name, value in request.scope["headers"] if name != b"content-type"]
    scope = {**request.scope, "headers": [*headers, (b"content-type", JSON.encode())]}
    return Request(scope, request.receive)


class _MessageRoute(_AnsweringRoute):
    """A route for clients that accept messages; other clients get the route of the same path that answers with JSON."""

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        """Return whether this route answers a request."""
        match, child_scope = super().matches(scope)
        if match is Match.FULL and not takes_messages(Headers(scope=scope)):
            return Match.NONE, {}
        return match, child_scope


class _KeptRoute(_AnsweringRoute):
    """A route whose answers are computed once per refresh interval. Errors are not cached."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Return the handler, which first looks for a cached answer."""
        write = super().get_route_handler()

        async def answer(request: Request) -> Response:
            answers: KeptAnswers = request.app.state.answers
            cluster: ClusterView = request.app.state.cluster
            scope = request.scope
            key = (scope["path"], scope["query_string"], takes_messages(request.headers))

            async def written() -> tuple[bytes, str]:
                response = await write(request)
                if response.status_code >= 400:
                    raise _UnkeptAnswer(response)
                return bytes(response.body), response.headers["content-type"]

            try:
                body, media_type = await answers.get(key, cluster.refresh_interval_ms, written)
            except _UnkeptAnswer as unkept:
                return unkept.response
            return Response(body, self.status_code or 200, media_type=media_type)

        return answer


class _UnkeptAnswer(Exception):
    """An answer that is only given to the present requests, and not cached."""

    def __init__(self, response: Response) -> None:
        super().__init__(response)
        self.response = response


def _error_answer(error: BaseException, *, is_message: bool) -> Response:
    """Return the answer for an error of a handler; clients that accept messages get the error itself."""
    answer = _json_error(error)
    # A handler's text about an error is for users; its cause is the error.
    said = error.__cause__ if isinstance(error, HandlerError) else error
    if isinstance(said, NotLeadingError):
        # A user may ask again, or ask the leader; clients only look at the status.
        return _errors(503, str(said))
    if is_message and isinstance(said, HeadraceError):
        body = msgspec.msgpack.encode(encode_error(said))
        return Response(body, answer.status_code, media_type=MESSAGE)
    return answer


def _json_error(error: BaseException) -> Response:
    if isinstance(error, HandlerError):
        return _errors(error.status, *error.texts)
    if isinstance(error, UnknownJobError):
        return _errors(404, f"Job {error.job_id} not found")
    if isinstance(error, (NothingCollectedError, UnknownOperatorError)):
        return _errors(404, str(error))
    if isinstance(error, (JobAlreadyEndedError, DuplicateJobSubmissionError)):
        return _errors(409, str(error))
    if isinstance(error, ConfigurationError):
        return _errors(400, str(error))
    if not isinstance(error, (HeadraceError, TimeoutError)):
        _LOG.error("a REST request failed", exc_info=error)
    return _errors(500, *internal_error(error))


async def _not_found(request: Request, error: Exception) -> Response:
    """Answer an unknown path, and a method that a path does not support: both are 404 in Flink."""
    status = error.status_code if isinstance(error, HTTPException) else 500
    if status in (404, 405):
        return _errors(404, f"Not found: {request.scope['path']}")
    return _errors(status, str(error))


async def _unparsable(request: Request, error: Exception) -> Response:
    """Answer invalid parameters and bodies."""
    assert isinstance(error, RequestValidationError)
    texts: list[str] = []
    for one in error.errors():
        where, *rest = one["loc"]
        if where in ("path", "query"):
            name = rest[-1] if rest else "?"
            value = str(one.get("input", ""))[:200]
            texts.append(
                f"Bad request, could not parse parameters: Cannot resolve {where} parameter ({name}) from value "
                f'"{value}": {one["msg"]}'
            )
        else:
            place = "".join(f"{each}: " for each in rest)
            texts.append(f"Request did not match expected format: {place}{one['msg']}")
    return _errors(400, *texts)


async def _failed(request: Request, error: Exception) -> Response:
    return _error_answer(error, is_message=takes_messages(request.headers))


def _errors(status: int, *texts: str) -> Response:
    # The text may contain a client's input with half a surrogate pair, which JSON can contain and UTF-8 cannot.
    sendable = [text.encode("utf-8", "replace").decode() for text in texts]
    body = ErrorBody(errors=sendable).model_dump_json()
    return Response(body, status, media_type=JSON)
