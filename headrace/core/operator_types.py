"""OperatorTypes: the types at the borders of one operator, shipped beside its function."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from headrace.core.record_batch import BatchType


@dataclass(frozen=True)
class OperatorTypes:
    """Types of the inputs (by input number), of the output and of side outputs (by tag id)."""

    inputs: tuple[BatchType, ...]
    output: BatchType
    side_outputs: Mapping[str, BatchType] = field(default_factory=dict[str, BatchType])
