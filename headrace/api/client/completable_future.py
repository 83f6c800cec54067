"""CompletableFuture: an answer of the cluster that a program may wait for, or await."""

import asyncio
import concurrent.futures
from collections.abc import Callable, Generator
from typing import Any, Final, Generic, TypeVar, cast

from headrace.core.errors import HeadraceError

T = TypeVar("T")

_SLICE_S: Final = 0.5


class ClusterClosedError(HeadraceError):
    """The cluster was closed while an answer of it was awaited."""

    recoverable = False

    def __init__(self) -> None:
        super().__init__(
            "the cluster was closed before it answered; a job that ran on it has ended"
        )


class CompletableFuture(Generic[T]):
    """Completed by the cluster's control thread; used from any thread, and awaitable on any event loop.

    Example:
        >>> future = concurrent.futures.Future()
        >>> future.set_result("7")
        >>> CompletableFuture(future, int).result()
        7
    """

    def __init__(
        self,
        future: "concurrent.futures.Future[Any]",
        convert: Callable[[Any], T] | None = None,
        is_alive: Callable[[], bool] = lambda: True,
    ) -> None:
        """`is_alive` says whether anybody is there to complete the future."""
        self._future = future
        self._convert = convert
        self._is_alive = is_alive

    def cancel(self) -> bool:
        """Stop waiting; True if the answer had not come. The job itself goes on."""
        return self._future.cancel()

    def cancelled(self) -> bool:
        return self._future.cancelled()

    def done(self) -> bool:
        return self._future.done()

    def result(self, timeout_s: float | None = None) -> T:
        """Wait for the answer; raises the failure, or TimeoutError where `timeout_s` has passed."""
        return self._converted(self._wait(timeout_s))

    def exception(self) -> BaseException | None:
        """Wait; return the failure, or None for an answer."""
        try:
            self._converted(self._wait(None))
        except Exception as error:  # of the answer, or what the conversion made of it
            return error
        return None

    def __await__(self) -> Generator[Any, Any, T]:
        value = yield from asyncio.wrap_future(self._future).__await__()
        return self._converted(value)

    def _wait(self, timeout_s: float | None) -> Any:
        """Wait in slices, to notice when the cluster was closed and nobody will answer any more."""
        waited_s = 0.0
        while timeout_s is None or waited_s + _SLICE_S < timeout_s:
            done, _ = concurrent.futures.wait([self._future], timeout=_SLICE_S)
            if done:
                return self._future.result()
            if not self._is_alive():
                raise ClusterClosedError
            waited_s += _SLICE_S
        return self._future.result(timeout_s - waited_s)

    def _converted(self, value: Any) -> T:
        return cast(T, value) if self._convert is None else self._convert(value)
