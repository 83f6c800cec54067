"""What becomes of records that come too late: they are counted, and go to a side output where one was asked for."""

from typing import Any

from headrace.metrics.names import NUM_LATE_RECORDS_DIVERTED, NUM_LATE_RECORDS_DROPPED
from headrace.operators.emission import ResultCollector
from headrace.operators.operator import OperatorContext


class LateRecords:
    """The late records of one input; `tag_id` None drops them."""

    def __init__(
        self, context: OperatorContext, collector: ResultCollector, tag_id: str | None
    ) -> None:
        self._collector = collector
        self._tag_id = tag_id
        self._count = context.metrics.counter(
            NUM_LATE_RECORDS_DROPPED if tag_id is None else NUM_LATE_RECORDS_DIVERTED
        )

    def take(self, value: Any, timestamp: int) -> None:
        """Take one record with its timestamp."""
        self._count.inc()
        if self._tag_id is not None:
            self._collector.add_side(self._tag_id, value, timestamp)
