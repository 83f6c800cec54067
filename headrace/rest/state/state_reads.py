"""StateReads: the bound of reads of state that go on at once, and the answers to those that fail."""

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


class StateReads:
    """Counts the reads of state that go on. Used on the REST thread's loop."""

    def __init__(self) -> None:
        self._count = 0

    @contextlib.asynccontextmanager
    async def turn(self) -> AsyncGenerator[None]:
        """Let the block read state. UnavailableError where too many others do."""
        if self._count >= _AT_ONCE_MAX:
            raise UnavailableError(
                f"{_AT_ONCE_MAX} others read state at the moment; ask again when they are done"
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
    """Turn errors of reads into answers of the client's mistakes, or of what is not there now."""
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
