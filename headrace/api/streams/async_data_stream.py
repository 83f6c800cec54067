"""AsyncDataStream: calls asynchronous functions, such as requests to a service, for many records at once."""

import inspect
from datetime import timedelta
from typing import Any, Final

from headrace.api.function_checks import check_function, resolve_type
from headrace.api.streams.data_stream import DataStream, TypeLike
from headrace.core.errors import ProgramError
from headrace.core.record_batch import BatchType
from headrace.core.types.time_values import Duration, Time, to_millis
from headrace.core.types.type_info import TypeInformation
from headrace.functions.async_io import (
    AsyncFunction,
    AsyncOutputMode,
    AsyncRetryPredicate,
    AsyncRetryStrategy,
    NoRetryStrategy,
)
from headrace.functions.specs.operator_specs import AsyncWaitSpec

_AMOUNTS: Final = (Time, Duration, timedelta, int)


class AsyncDataStream:
    """Calls an AsyncFunction for every record of a stream; up to `capacity` calls are in flight in each subtask.

    `timeout` is the time for one record with all its retries; after it the function's `timeout` is called. A full queue
    blocks the stream, but not checkpoints or timers. After a failure of the job calls may be made again.

    Example:
        >>> from headrace import StreamExecutionEnvironment, Time, Types
        >>> class Ask(AsyncFunction[int, int]):
        ...     async def async_invoke(self, value: int) -> list[int]:
        ...         return [value + 1]
        >>> env = StreamExecutionEnvironment.get_execution_environment()
        >>> numbers = env.from_collection([1, 2], Types.INT())
        >>> AsyncDataStream.ordered_wait(numbers, Ask(), Time.seconds(5), 10, Types.INT()).get_type()
        Integer
    """

    @staticmethod
    def unordered_wait(
        data_stream: DataStream,
        async_function: AsyncFunction[Any, Any],
        timeout: Time | Duration,
        capacity: int = 100,
        output_type: TypeLike = None,
    ) -> DataStream:
        """Emit results as they arrive; none overtakes a watermark."""
        return AsyncDataStream.unordered_wait_with_retry(
            data_stream, async_function, timeout, NoRetryStrategy(), capacity, output_type
        )

    @staticmethod
    def ordered_wait(
        data_stream: DataStream,
        async_function: AsyncFunction[Any, Any],
        timeout: Time | Duration,
        capacity: int = 100,
        output_type: TypeLike = None,
    ) -> DataStream:
        """Emit results in the order of the records."""
        return AsyncDataStream.ordered_wait_with_retry(
            data_stream, async_function, timeout, NoRetryStrategy(), capacity, output_type
        )

    @staticmethod
    def unordered_wait_with_retry(
        data_stream: DataStream,
        async_function: AsyncFunction[Any, Any],
        timeout: Time | Duration,
        async_retry_strategy: AsyncRetryStrategy[Any],
        capacity: int = 100,
        output_type: TypeLike = None,
    ) -> DataStream:
        """Emit results as they arrive; retry calls according to the strategy."""
        spec = _spec(
            async_function, timeout, capacity, AsyncOutputMode.UNORDERED, async_retry_strategy
        )
        return _added(data_stream, spec, output_type)

    @staticmethod
    def ordered_wait_with_retry(
        data_stream: DataStream,
        async_function: AsyncFunction[Any, Any],
        timeout: Time | Duration,
        async_retry_strategy: AsyncRetryStrategy[Any],
        capacity: int = 100,
        output_type: TypeLike = None,
    ) -> DataStream:
        """Emit results in the order of the records; retry calls according to the strategy."""
        spec = _spec(
            async_function, timeout, capacity, AsyncOutputMode.ORDERED, async_retry_strategy
        )
        return _added(data_stream, spec, output_type)


def _spec(
    function: AsyncFunction[Any, Any],
    timeout: Time | Duration,
    capacity: int,
    mode: AsyncOutputMode,
    strategy: AsyncRetryStrategy[Any],
) -> AsyncWaitSpec:
    """Check the arguments, with PyFlink's error messages if it has them."""
    check_function(function, AsyncFunction, allow_callable=False)
    if not inspect.iscoroutinefunction(function.async_invoke):
        raise TypeError(
            f"Method 'async_invoke' of class '{type(function).__name__}' should be declared as 'async def'."
        )
    if not isinstance(strategy, AsyncRetryStrategy):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeError(f"an AsyncRetryStrategy is needed, not {strategy!r}")
    if not isinstance(strategy.get_retry_predicate(), AsyncRetryPredicate):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeError(
            f"Retry predicate of the async retry strategy '{type(strategy).__name__}' is not an AsyncRetryPredicate"
        )
    where = f"{mode.name.lower()}_wait() with '{type(function).__name__}'"
    _check_kind(where, "timeout", timeout, _AMOUNTS, "an amount of time such as Time.seconds(5)")
    _check_kind(where, "capacity", capacity, (int,), "a number of calls such as 100")
    timeout_ms = to_millis(timeout)
    if timeout_ms <= 0:
        raise ProgramError(
            f"the timeout of an asynchronous function must be above 0, not {timeout_ms} ms: a call that never ends "
            f"would block the stream forever"
        )
    if capacity <= 0:
        raise ProgramError(f"the capacity must be above 0, not {capacity}")
    return AsyncWaitSpec(function, timeout_ms, capacity, mode, strategy)


def _check_kind(
    where: str, argument: str, given: object, kinds: tuple[type, ...], wanted: str
) -> None:
    """Raise TypeError if an argument has another type, for example if the output type was passed in its place."""
    if isinstance(given, kinds) and not isinstance(given, bool):
        return
    remedy = ""
    if isinstance(given, TypeInformation):
        remedy = "; pass the result type after timeout and capacity, or by name as output_type="
    raise TypeError(f"{where}: its {argument} is {wanted}, not {given!r}{remedy}")


def _added(stream: DataStream, spec: AsyncWaitSpec, output_type: TypeLike) -> DataStream:
    if not isinstance(stream, DataStream):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeError(f"a DataStream is needed, not {stream!r}")
    environment = stream.get_execution_environment()
    operator = environment.add_operator(
        spec,
        (stream.transformation,),
        BatchType(resolve_type(output_type)),
        is_function=True,
    )
    return DataStream(environment, operator)
