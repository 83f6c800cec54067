"""StateInitializer: what the operators of a task start from, their states and how far they were in event time.

Source: Flink StreamTaskStateInitializerImpl.
"""

from collections.abc import Iterator
from typing import Final

from headrace.checkpoint.handles import (
    NO_FILE,
    OUTPUT_WATERMARK,
    WATERMARK,
    StateChunk,
    StateTable,
)
from headrace.checkpoint.options import RESTORE_WATERMARKS
from headrace.core.ids import OperatorId
from headrace.core.key_groups import key_group_range
from headrace.core.operator_spec import OperatorTypes
from headrace.graph.job_graph import ChainedOperator
from headrace.metrics.groups import MetricGroup
from headrace.state.operator_states import OperatorStates
from headrace.task.environment import TaskEnvironment


class StateInitializer:
    """One per task. The task's thread."""

    def __init__(self, environment: TaskEnvironment) -> None:
        self._environment: Final = environment

    def states_of(
        self, operator: ChainedOperator, types: OperatorTypes, metrics: MetricGroup
    ) -> OperatorStates:
        """Return the states of an operator, as they were or empty, for its key groups."""
        environment, operator_id = self._environment, operator.operator_id
        vertex, restore = environment.vertex, environment.restore
        if restore is not None and operator_id not in restore.operators:
            # New in the program: a source, say, must begin, and not go on with no splits.
            restore = None
        subtask_index = environment.attempt_id.subtask_index
        return OperatorStates(
            operator_name=operator.name,
            key_groups=key_group_range(subtask_index, vertex.parallelism, vertex.max_parallelism),
            max_parallelism=vertex.max_parallelism,
            types=types,
            settings=environment.settings,
            clock=environment.clock,
            metrics=metrics,
            restored=None if restore is None else restore.state_of(operator_id),
            restored_checkpoint_id=None if restore is None else restore.checkpoint_id,
            reader=None if restore is None else environment.snapshots.reader(),
            scratch=str(environment.scratch or ""),
        )

    def watermarks_of(self, operator_id: OperatorId) -> Iterator[tuple[int, int]]:
        """Watermarks of an operator and of its output, as `watermark_chunk` kept them; none where settings say so."""
        restore = self._environment.restore
        if restore is None or not self._environment.settings.get_option(RESTORE_WATERMARKS):
            return
        for chunk in restore.state_of(operator_id).chunks:
            if chunk.table is StateTable.WATERMARKS:
                attributes = chunk.attributes
                yield int(attributes[WATERMARK]), int(attributes[OUTPUT_WATERMARK])


def watermark_chunk(watermark: int, output_watermark: int) -> StateChunk:
    """Return what a checkpoint keeps of how far an operator and its output are in event time, in epoch milliseconds."""
    attributes = {WATERMARK: str(watermark), OUTPUT_WATERMARK: str(output_watermark)}
    return StateChunk(StateTable.WATERMARKS, "", 0, NO_FILE, None, attributes)
