"""CompletableFuture: an answer of the cluster that a program may wait for, or await."""

import asyncio
import concurrent.futures
from collections.abc import Callable, Generator
from typing import Any, Generic, TypeVar, cast

T = TypeVar("T")


class CompletableFuture(Generic[T]):
    """Completed by the cluster's control thread; used from any thread, and awaitable on any event loop.

    Example:
        >>> future = concurrent.futures.Future()
        >>> future.set_result("7")
        >>> CompletableFuture(future, int).result()
        7
    """

    def __init__(
        self, future: "concurrent.futures.Future[Any]", convert: Callable[[Any], T] | None = None
    ) -> None:
        self._future = future
        self._convert = convert

    def cancel(self) -> bool:
        """Stop waiting; True if the answer had not come. The job itself goes on."""
        return self._future.cancel()

    def cancelled(self) -> bool:
        return self._future.cancelled()

    def done(self) -> bool:
        return self._future.done()

    def result(self, timeout_s: float | None = None) -> T:
        """Wait for the answer; raises the failure, or TimeoutError where `timeout_s` has passed."""
        return self._converted(self._future.result(timeout_s))

    def exception(self) -> BaseException | None:
        """Wait; return the failure, or None for an answer."""
        failure = self._future.exception()
        if failure is not None:
            return failure
        try:
            self._converted(self._future.result())
        except Exception as error:  # whatever the conversion says is the failure
            return error
        return None

    def __await__(self) -> Generator[Any, Any, T]:
        value = yield from asyncio.wrap_future(self._future).__await__()
        return self._converted(value)

    def _converted(self, value: Any) -> T:
        return cast(T, value) if self._convert is None else self._convert(value)
