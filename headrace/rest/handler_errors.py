"""Errors of REST handlers; each becomes an answer with a status and texts.

HandlerError
+- NotFoundError           404: the job, vertex, checkpoint or operation does not exist
+- BadRequestError         400: the request is invalid
+- UnknownTokenError       401: the token is not the cluster's
+- ForbiddenError          403: the cluster's settings forbid it
+- ConflictError           409: the job's state does not allow it
+- UnavailableError        503: this part of the cluster does not answer at the moment
"""

from typing import ClassVar


class HandlerError(Exception):
    """The answer to a request that cannot be fulfilled. `texts`: the content of `errors`."""

    status: ClassVar[int] = 500

    def __init__(self, *texts: str) -> None:
        super().__init__(*texts)
        self.texts = texts


class NotFoundError(HandlerError):
    """The object that the path names does not exist."""

    status = 404


class BadRequestError(HandlerError):
    """The request is invalid."""

    status = 400


class UnknownTokenError(HandlerError):
    """The token is not the cluster's."""

    status = 401


class ForbiddenError(HandlerError):
    """The cluster's settings forbid the request."""

    status = 403


class ConflictError(HandlerError):
    """The state of the object that the path names does not allow the request."""

    status = 409


class UnavailableError(HandlerError):
    """A part of the cluster does not answer at the moment; the same request may succeed later."""

    status = 503


def internal_error(error: BaseException) -> tuple[str, str]:
    """Return the two texts of an answer with status 500, as Flink: a heading, and the error between marker lines."""
    return (
        "Internal server error.",
        f"<Exception on server side:\n{error}\nEnd of exception on server side>",
    )
