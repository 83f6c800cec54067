"""Handlers of Flink routes that this cluster does not support; each answers why, with the status that clients know."""

import contextlib
from typing import NoReturn

from fastapi import Request
from starlette.requests import ClientDisconnect

from headrace.rest.handler_errors import (
    BadRequestError,
    HandlerError,
    NotFoundError,
    UnavailableError,
)


async def submit_java_graph(request: Request) -> NoReturn:
    """Refuse a job graph of Flink's Java client after it was received: a sending client would not read the answer."""
    with contextlib.suppress(ClientDisconnect):
        async for _ in request.stream():
            pass
    raise BadRequestError(
        "This cluster runs Python programs and cannot run a Java job graph: start a program with 'headrace run'."
    )


async def rescale() -> NoReturn:
    """Refuse the route, which Flink has switched off as well."""
    raise UnavailableError("Rescaling is temporarily disabled. See FLINK-12312.")


async def resource_requirements() -> NoReturn:
    """Refuse to change the parallelism of a running job, as Flink's default scheduler does."""
    raise HandlerError(
        "Internal server error.",
        "The scheduler of this job does not support changing the resource requirements: stop it with a savepoint "
        "and restart it with another parallelism.",
    )


async def rescales() -> NoReturn:
    """Refuse to list changes of a job's parallelism while it ran, as Flink's default scheduler does."""
    raise NotFoundError(
        "The scheduler of this job never changes its parallelism while it runs, and keeps no history of rescaling."
    )
