"""Errors of the REST endpoint: each is an answer with a status and texts.

HandlerError
+- NotFoundError           404: the job, vertex, checkpoint or operation is not there
+- BadRequestError         400: the request says something impossible
+- UnknownTokenError       401: the token is not the cluster's
+- ForbiddenError          403: the cluster is set up not to do this
+- ConflictError           409: the job is in no state for this
+- UnavailableError        503: this part of the cluster does not answer now
"""

from typing import ClassVar


class HandlerError(Exception):
    """The answer to a request that cannot be fulfilled. `texts`: what `errors` holds."""

    status: ClassVar[int] = 500

    def __init__(self, *texts: str) -> None:
        super().__init__(*texts)
        self.texts = texts


class NotFoundError(HandlerError):
    """The thing that the path names is not there."""

    status = 404


class BadRequestError(HandlerError):
    """The request says something impossible."""

    status = 400


class UnknownTokenError(HandlerError):
    """The token is not the cluster's."""

    status = 401


class ForbiddenError(HandlerError):
    """The cluster is set up not to do this."""

    status = 403


class ConflictError(HandlerError):
    """The thing that the path names is in no state for this."""

    status = 409


class UnavailableError(HandlerError):
    """A part of the cluster does not answer now; the same request may succeed later."""

    status = 503


def internal_error(error: BaseException) -> tuple[str, str]:
    """Return the texts of an answer with status 500: Flink's first line, and the cause in a sentence."""
    return (
        "Internal server error.",
        f"<Exception on server side:\n{error}\nEnd of exception on server side>",
    )
