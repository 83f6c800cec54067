"""StateReadLimit: limits the number of concurrent reads of state, and translates their errors."""

import contextlib
from collections.abc import AsyncGenerator, Generator
from typing import Final

from headrace.checkpoint.errors import (
    CheckpointStorageError,
    MetadataError,
    MetadataMissingError,
    StateKeyMismatchError,
    StateReadError,
    StateReadsBusyError,
)
from headrace.gateways.errors import StateReadTimeoutError, UnknownOperatorError
from headrace.rest.handler_errors import (
    BadRequestError,
    ConflictError,
    NotFoundError,
    UnavailableError,
)
from headrace.state_processor.errors import (
    InFlightRecordsError,
    JsonValueError,
    NativeStateError,
    StateProcessorError,
    UnknownStateError,
)

_AT_ONCE_MAX: Final = 4


class StateReadLimit:
    """Counts the running reads of state. Used on the REST thread's loop."""

    def __init__(self) -> None:
        self._count = 0

    @contextlib.asynccontextmanager
    async def turn(self) -> AsyncGenerator[None]:
        """Let the block read state. UnavailableError if too many other reads are running."""
        if self._count >= _AT_ONCE_MAX:
            raise UnavailableError(
                f"{_AT_ONCE_MAX} other reads of state are running; try again when they have ended"
            )
        self._count += 1
        try:
            yield
        finally:
            self._count -= 1

    @contextlib.asynccontextmanager
    async def answering(self) -> AsyncGenerator[None]:
        """Let the block read state for an answer: errors of the read become errors of the handler."""
        async with self.turn():
            with _answering_errors():
                yield


@contextlib.contextmanager
def _answering_errors() -> Generator[None]:
    """Turn errors of reads into handler errors for client mistakes and unavailable data."""
    try:
        yield
    except (
        UnknownOperatorError,
        UnknownStateError,
        CheckpointStorageError,
        MetadataMissingError,
    ) as error:
        raise NotFoundError(str(error)) from error
    except (StateReadsBusyError, StateReadTimeoutError) as error:
        raise UnavailableError(str(error)) from error
    except (StateKeyMismatchError, JsonValueError) as error:
        raise BadRequestError(str(error)) from error
    except (NativeStateError, InFlightRecordsError, StateReadError, MetadataError) as error:
        raise ConflictError(str(error)) from error
    except StateProcessorError as error:
        raise BadRequestError(str(error)) from error
