"""States of an operator that is new."""

from headrace.checkpoint.handles import OperatorSubtaskState
from headrace.core.clock import ManualClock
from headrace.core.config import Settings
from headrace.core.key_groups import key_group_range
from headrace.core.operator_spec import OperatorTypes
from headrace.core.record_batch import BatchType
from headrace.core.types.type_info import TypeInformation, Types
from headrace.state.operator_state_handler import OperatorStateHandler
from headrace.testing.operator_harness import MemorySnapshots

PICKLED = Types.PICKLED_BYTE_ARRAY()


MAX_PARALLELISM = 128


def states_of(
    restored: OperatorSubtaskState | None = None,
    *,
    key_type: TypeInformation = PICKLED,
    parallelism: int = 1,
    subtask_index: int = 0,
) -> OperatorStateHandler:
    return OperatorStateHandler(
        key_groups=key_group_range(subtask_index, parallelism, MAX_PARALLELISM),
        max_parallelism=MAX_PARALLELISM,
        types=OperatorTypes((BatchType(PICKLED, key_type),), BatchType(PICKLED)),
        settings=Settings(),
        clock=ManualClock(),
        restored=restored,
        restored_checkpoint_id=None if restored is None else 1,
        reader=MemorySnapshots(),
    )
