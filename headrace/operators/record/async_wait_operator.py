"""AsyncWaitOperator: calls an AsyncFunction for every record, with many calls in flight, and emits their results.

The coroutines run on the event loop of a `CallThread`; everything else happens on the task's thread. Calls that have
ended come back by mail, which puts their results into the queue and emits what the queue releases. Inputs in flight are
operator state: after a restore they are submitted again, so that calls are made at least once.
Source: Flink AsyncWaitOperator.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, Final, Protocol

from headrace.core.elements import Watermark, WatermarkStatus
from headrace.core.errors import USER_EXCEPTIONS, short_repr
from headrace.core.record_batch import RecordBatch
from headrace.core.threads import EventLoopThread, spawn
from headrace.core.types.record_copies import as_it_is, is_unchanging_type, private_copy
from headrace.core.types.type_info import Types
from headrace.functions.async_io import AsyncOutputMode
from headrace.functions.runtime_context import ScheduledTimer
from headrace.functions.specs.operator_specs import AsyncWaitSpec
from headrace.functions.state import ListStateDescriptor
from headrace.graph.pipeline_options import OBJECT_REUSE
from headrace.operators.record.async_queue import (
    AsyncQueue,
    InFlight,
    OrderedQueue,
    UnorderedQueue,
)
from headrace.operators.runtime.emission import ResultCollector, timestamps_of
from headrace.operators.runtime.operator import OneInputOperator, OperatorContext, Output
from headrace.operators.runtime.user_code import FunctionOperator, user_error

IN_FLIGHT_STATE: Final = "_async_wait_operator_state_"
"""Name of the state that holds the inputs in flight, as (value, timestamp)."""


class AsyncCall:
    """One attempt of a call; once it has ended, `results` or `error` is set. `subject`: the request it belongs to."""

    __slots__ = ("_invoke", "error", "is_cancelled", "results", "subject", "task")

    def __init__(self, subject: Any, invoke: Callable[[], Awaitable[Any]]) -> None:
        self.subject = subject
        self._invoke = invoke
        self.results: Any = None
        self.error: BaseException | None = None
        self.is_cancelled = False
        self.task: asyncio.Task[None] | None = None

    async def run(self) -> None:
        """Await the user's coroutine and store its outcome."""
        try:
            self.results = await self._invoke()
        except asyncio.CancelledError as error:
            if self.is_cancelled:
                raise
            self.error = error
        except BaseException as error:  # any error of user code must reach the task's thread
            self.error = error


CallsEnded = Callable[[Sequence[AsyncCall]], None]
"""Function called with several ended calls, on another thread than the task's; cancelled calls may be among them."""


class AsyncCalls(Protocol):
    """Runs calls for the task's thread."""

    def start(self, calls: Sequence[AsyncCall]) -> None:
        """Start calls; does not wait."""
        ...

    def cancel(self, call: AsyncCall) -> None:
        """Cancel a call whose result is not needed any more; does not wait."""
        ...

    def close(self) -> None:
        """Cancel running calls and release resources. Idempotent."""
        ...


class CallThread:
    """An event loop on a thread of its own. Implements AsyncCalls.

    A switch between threads costs more than a coroutine, so that calls are started together, and calls that end in one
    round of the loop are reported together.
    """

    def __init__(self, name: str, ended: CallsEnded) -> None:
        self._thread: Final = EventLoopThread(name)
        self._tell_ended: Final = ended
        self._ended: list[AsyncCall] = []
        self._tasks: set[asyncio.Task[Any]] = set()

    def start(self, calls: Sequence[AsyncCall]) -> None:
        self._thread.loop.call_soon_threadsafe(self._start, calls)

    def cancel(self, call: AsyncCall) -> None:
        call.is_cancelled = True
        self._thread.loop.call_soon_threadsafe(_cancel, call)

    def close(self) -> None:
        self._thread.stop()

    def _start(self, calls: Sequence[AsyncCall]) -> None:
        for call in calls:
            if not call.is_cancelled:
                call.task = spawn(self._run(call), self._thread.loop, "async_invoke", self._tasks)

    async def _run(self, call: AsyncCall) -> None:
        await call.run()
        if not self._ended:
            self._thread.loop.call_soon(self._hand_over)
        self._ended.append(call)

    def _hand_over(self) -> None:
        ended, self._ended = self._ended, []
        self._tell_ended(ended)


def _cancel(call: AsyncCall) -> None:
    if call.task is not None:
        call.task.cancel()


class _Request(InFlight):
    """An input in flight with its current call, or the timer of its next call."""

    __slots__ = ("attempt_count", "call", "retry_timer")

    def __init__(self, value: Any, timestamp_ms: int) -> None:
        super().__init__(value, timestamp_ms)
        self.attempt_count = 0
        self.call: AsyncCall | None = None
        self.retry_timer: ScheduledTimer | None = None


class AsyncWaitOperator(FunctionOperator, OneInputOperator):
    """Limits the calls that run or wait to be emitted to `capacity`; further rows of a batch wait.

    A call counts from its start until its results are emitted. Until all rows are started and there is room for one
    more, the task is told not to feed the operator.
    """

    _calls: AsyncCalls | None = None

    def __init__(
        self,
        spec: AsyncWaitSpec,
        create_calls: Callable[[str, CallsEnded], AsyncCalls] = CallThread,
    ) -> None:
        super().__init__(spec)
        self._spec = spec
        self._create_calls = create_calls
        self._queue: AsyncQueue[_Request] = (
            OrderedQueue() if spec.mode is AsyncOutputMode.ORDERED else UnorderedQueue()
        )
        self._unstarted: deque[_Request] = deque()
        self._delayed: dict[_Request, None] = {}
        self._started_count = 0
        self._has_timestamps = False
        # Requests that may time out, by deadline; one timer for the first, whether it is still in flight then or not.
        self._deadlines: dict[_Request, int] = {}
        self._is_timer_set = False
        predicate = spec.retry_strategy.get_retry_predicate()
        self._retries_result = predicate.result_predicate()
        self._retries_exception = predicate.exception_predicate()

    def open(self, context: OperatorContext) -> None:
        super().open(context)
        self._collector = ResultCollector(context)
        input_type = context.types.inputs[0].value_type
        is_shared = context.settings.get_option(OBJECT_REUSE) or is_unchanging_type(input_type)
        # A call may change its argument, while the input is still needed for a retry or a snapshot.
        self._copy = as_it_is if is_shared else private_copy
        self._calls = self._create_calls(
            f"{context.task_name_with_subtasks} async",
            self._mail_ended,
        )
        self._open_function(None)
        element_type = Types.TUPLE([input_type, Types.LONG()])
        self._in_flight = self._operator_state.get_list_state(
            ListStateDescriptor(IN_FLIGHT_STATE, element_type)
        )
        self._has_timestamps = True
        self._take(list(self._in_flight.get()))
        self._in_flight.clear()

    def process_batch(self, batch: RecordBatch, output: Output) -> None:
        self._has_timestamps = batch.timestamps is not None
        self._take(zip(batch.rows(), timestamps_of(batch), strict=True))

    def process_watermark(self, timestamp_ms: int, output: Output) -> None:
        self._queue.put_marker(Watermark(timestamp_ms))
        self._emit_ready()

    def process_status(self, is_idle: bool, output: Output) -> None:
        # As in-band as watermarks: behind an idle status watermarks that are still in the queue would be swallowed.
        self._queue.put_marker(WatermarkStatus(is_idle))
        self._emit_ready()

    @property
    def can_take_input(self) -> bool:
        return not self._unstarted and self._started_count < self._spec.capacity

    @property
    def is_drained(self) -> bool:
        return self._queue.is_empty

    def end_input(self, input_number: int, output: Output) -> None:
        """Start the waiting retries at once. Calls that fail later are retried as before.

        Flink stops retrying at the end of input, and so would fail a short job at its first error; PyFlink does the
        same as this.
        """
        delayed = list(self._delayed)
        for request in delayed:
            self._cancel_retry(request)
        self._start(delayed)

    def finish(self, output: Output) -> None:
        assert self._queue.is_empty

    def snapshot_state(self, checkpoint_id: int) -> tuple[()]:
        self._in_flight.update(self.in_flight_inputs())
        return ()

    def in_flight_inputs(self) -> list[tuple[Any, int]]:
        """Return the inputs whose results were not emitted, in order, with timestamps (MIN_TIMESTAMP: none)."""
        return [(request.value, request.timestamp_ms) for request in self._queue.inputs()]

    def close(self) -> None:
        calls, self._calls = self._calls, None
        if calls is not None:
            calls.close()
        super().close()

    def _take(self, inputs: Iterable[tuple[Any, int]]) -> None:
        for value, timestamp_ms in inputs:
            request = _Request(value, timestamp_ms)
            self._queue.put(request)
            self._unstarted.append(request)
        self._start_waiting()

    def _start_waiting(self) -> None:
        """Start waiting inputs while there is room; their timeout begins now."""
        count = min(len(self._unstarted), self._spec.capacity - self._started_count)
        if count <= 0:
            return
        deadline_ms = self.context.timers.now_ms() + self._spec.timeout_ms
        requests = [self._unstarted.popleft() for _ in range(count)]
        self._deadlines.update(dict.fromkeys(requests, deadline_ms))
        self._started_count += count
        self._start(requests)
        self._set_timer()

    def _start(self, requests: Iterable[_Request]) -> None:
        """Start the next call of each request."""
        assert self._calls is not None
        calls: list[AsyncCall] = []
        try:
            for request in requests:
                request.attempt_count += 1
                request.call = self._call_for(request)
                calls.append(request.call)
        except USER_EXCEPTIONS as error:  # records are copied by their own classes
            raise user_error(error, self.context.operator_name) from error
        if calls:
            self._calls.start(calls)

    def _call_for(self, request: _Request) -> AsyncCall:
        function, value = self._function, self._copy(request.value)
        return AsyncCall(request, lambda: function.async_invoke(value))

    def _mail_ended(self, calls: Sequence[AsyncCall]) -> None:
        """Mail ended calls to the task; runs on the calls' thread."""
        self.context.mail(lambda: self._take_ended(calls))

    def _take_ended(self, calls: Sequence[AsyncCall]) -> None:
        try:
            for call in calls:
                request: _Request = call.subject
                if request.call is call:  # else it was given up before
                    request.call = None
                    self._call_ended(request, call)
        except USER_EXCEPTIONS as error:
            raise user_error(error, self.context.operator_name) from error
        self._emit_ready()

    def _call_ended(self, request: _Request, call: AsyncCall) -> None:
        if call.error is None:
            _check_results(call.results)
        if self._is_worth_repeating(request, call):
            delay_ms = self._spec.retry_strategy.get_backoff_time_millis(request.attempt_count)
            timers = self.context.timers
            self._delayed[request] = None
            request.retry_timer = timers.schedule(
                timers.now_ms() + delay_ms, self._when_to_retry(request)
            )
        elif call.error is not None:
            raise call.error
        else:
            self._complete(request, call.results)

    def _is_worth_repeating(self, request: _Request, call: AsyncCall) -> bool:
        if not self._spec.retry_strategy.can_retry(request.attempt_count):
            return False
        if call.error is None:
            return self._retries_result is not None and bool(self._retries_result(call.results))
        return (
            self._retries_exception is not None
            and isinstance(call.error, Exception)
            and bool(self._retries_exception(call.error))
        )

    def _when_to_retry(self, request: _Request) -> Callable[[int], None]:
        def retry(_time_ms: int) -> None:
            self._cancel_retry(request)
            self._start([request])

        return retry

    def _set_timer(self) -> None:
        """Set a timer for the first deadline; timers for each input would stay long after its answer."""
        if self._deadlines and not self._is_timer_set:
            self._is_timer_set = True
            self.context.timers.schedule(next(iter(self._deadlines.values())), self._time_out)

    def _time_out(self, _time_ms: int) -> None:
        """Give up calls that have exceeded their timeout."""
        self._is_timer_set = False
        now_ms = self.context.timers.now_ms()
        try:
            while self._deadlines:
                request = next(iter(self._deadlines))
                if self._deadlines[request] > now_ms:
                    break
                self._give_up(request)
        except USER_EXCEPTIONS as error:
            raise user_error(error, self.context.operator_name) from error
        self._set_timer()
        self._emit_ready()

    def _give_up(self, request: _Request) -> None:
        assert self._calls is not None
        call, request.call = request.call, None
        if call is not None:
            self._calls.cancel(call)
        self._cancel_retry(request)
        results = self._function.timeout(request.value)
        _check_results(results)
        self._complete(request, results)

    def _cancel_retry(self, request: _Request) -> None:
        self._delayed.pop(request, None)
        timer, request.retry_timer = request.retry_timer, None
        if timer is not None:
            timer.cancel()

    def _complete(self, request: _Request, results: list[Any]) -> None:
        del self._deadlines[request]
        self._queue.complete(request, results)

    def _emit_ready(self) -> None:
        """Emit the results that the queue releases, and start waiting inputs in the free places."""
        output = self.context.output
        for element in self._queue.take_ready():
            match element:
                case Watermark(timestamp_ms):
                    self._flush(output)
                    super().process_watermark(timestamp_ms, output)
                case WatermarkStatus(is_idle):
                    self._flush(output)
                    super().process_status(is_idle, output)
                case _:
                    self._started_count -= 1
                    self._collect(element, output)
        self._flush(output)
        self._start_waiting()
        if self.can_take_input:
            self.context.wake()

    def _collect(self, request: _Request, output: Output) -> None:
        try:
            self._collector.add(request.results, request.timestamp_ms, output, "async_invoke")
        except USER_EXCEPTIONS as error:
            raise user_error(error, self.context.operator_name) from error

    def _flush(self, output: Output) -> None:
        self._collector.flush(output, self._has_timestamps)


def _check_results(results: Any) -> None:
    """Raise TypeError unless `results` is a list, as PyFlink does."""
    if results is None:
        raise TypeError(
            "The result of AsyncFunction cannot be none: return a list, an empty one for no results"
        )
    if not isinstance(results, list):
        raise TypeError(
            f"The result of AsyncFunction should be of list type, but is {type(results).__name__} "
            f"{short_repr(results)}"
        )
