"""Handlers of Flink routes that this cluster cannot serve: each says why, with the status that clients know."""

from typing import NoReturn

from headrace.rest.handler_errors import BadRequestError, HandlerError, UnavailableError


async def submit_java_graph() -> NoReturn:
    """Refuse a job graph of Flink's Java client."""
    raise BadRequestError(
        "This cluster runs Python programs and cannot take a Java job graph: start a program with 'headrace run'."
    )


async def rescale() -> NoReturn:
    """Refuse the route that Flink has switched off as well."""
    raise UnavailableError("Rescaling is temporarily disabled. See FLINK-12312.")


async def resource_requirements() -> NoReturn:
    """Refuse to change the parallelism of a running job, as Flink's default scheduler does."""
    raise HandlerError(
        "Internal server error.",
        "The scheduler of this job does not support changing the resource requirements: stop it with a savepoint and "
        "start it again with another parallelism.",
    )
