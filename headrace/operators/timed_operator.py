"""TimedOperator: an operator with keyed state and timers, whose results are gathered and emitted in batches."""

from abc import abstractmethod
from collections.abc import Callable
from typing import Any, Final

from headrace.core.errors import USER_EXCEPTIONS
from headrace.operators.emission import ResultCollector
from headrace.operators.operator import Operator, OperatorContext, Output
from headrace.operators.timers import InternalTimerService
from headrace.operators.user_code import user_error

TIMERS: Final = "timers"
"""Name of the operator's timers in snapshots."""


class TimedOperator(Operator):
    """Base: a backend, a timer service that fires into `_on_event_time` and `_on_processing_time`, a collector."""

    def open(self, context: OperatorContext) -> None:
        super().open(context)
        self._backend = context.state.create_keyed_backend()
        self._scope = self._backend.key_scope
        self._collector = ResultCollector(context)
        self._timers = InternalTimerService(
            self._backend,
            context.timers,
            self._on_event_time,
            self._on_processing_time,
            self._on_wake_up,
        )
        self._timers.keep_in(context.state, TIMERS)

    def process_watermark(self, timestamp_ms: int, output: Output) -> None:
        self._backend.begin_batch(0)
        try:
            self._timers.advance_watermark(timestamp_ms)
        except USER_EXCEPTIONS as error:
            raise user_error(error, self.context.operator_name) from error
        self._backend.end_batch()
        self._collector.flush(output)
        super().process_watermark(timestamp_ms, output)

    @abstractmethod
    def _on_event_time(self, time_ms: int, key: Any, namespace: Any) -> None:
        """An event-time timer of `key` (current) and `namespace` is due."""

    @abstractmethod
    def _on_processing_time(self, time_ms: int, key: Any, namespace: Any) -> None:
        """A processing-time timer of `key` (current) and `namespace` is due."""

    def _on_wake_up(self, run: Callable[[], None]) -> None:
        self._backend.begin_batch(0)
        try:
            run()
        except USER_EXCEPTIONS as error:
            raise user_error(error, self.context.operator_name) from error
        self._backend.end_batch()
        self._collector.flush(self.context.output)
