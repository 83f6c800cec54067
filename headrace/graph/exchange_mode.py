"""How results travel between the tasks of a job: the job's choice, and what it makes of each edge.

Source: Flink BatchShuffleMode, GlobalStreamExchangeMode, StreamingJobGraphGenerator.
"""

import enum
from typing import Final

from headrace.core.config import ConfigOption, Settings
from headrace.core.shuffle_descriptors import ResultPartitionType


class BatchShuffleMode(enum.Enum):
    """The kinds of exchange a job may choose between. Names are Flink's."""

    ALL_EXCHANGES_PIPELINED = ResultPartitionType.PIPELINED_BOUNDED
    ALL_EXCHANGES_BLOCKING = ResultPartitionType.BLOCKING
    ALL_EXCHANGES_HYBRID_FULL = ResultPartitionType.HYBRID_FULL
    ALL_EXCHANGES_HYBRID_SELECTIVE = ResultPartitionType.HYBRID_SELECTIVE

    @property
    def result_type(self) -> ResultPartitionType:
        """What every edge between two tasks becomes, unless recovery may be approximate."""
        return self.value


BATCH_SHUFFLE_MODE: Final = ConfigOption(
    "execution.batch-shuffle-mode",
    str,
    default=BatchShuffleMode.ALL_EXCHANGES_PIPELINED.name,
    doc="How tasks of a bounded job exchange rows: ALL_EXCHANGES_PIPELINED, while the producer runs; "
    "ALL_EXCHANGES_BLOCKING, through files (io.tmp.dirs), once it has finished; ALL_EXCHANGES_HYBRID_FULL or "
    "ALL_EXCHANGES_HYBRID_SELECTIVE, while it runs, with files for all, or for what memory does not hold.",
    choices=tuple(BatchShuffleMode.__members__),
)
APPROXIMATE_LOCAL_RECOVERY: Final = ConfigOption(
    "execution.state-recovery.approximate-local-recovery",
    bool,
    default=False,
    doc="Whether a task that fails restarts with those behind it alone, while those before it go on: what was on its "
    "way to them is lost. For pipelined exchanges; not together with unaligned checkpoints.",
    deprecated_keys=("execution.checkpointing.approximate-local-recovery",),
)
NO_BUFFER_TIMEOUT: Final = -1


def shuffle_mode_of(settings: Settings) -> BatchShuffleMode:
    """Return the job's choice. ConfigurationError for a name that is none."""
    return BatchShuffleMode[settings.get_option(BATCH_SHUFFLE_MODE)]


def result_type_of(settings: Settings) -> ResultPartitionType:
    """Return what every edge between two tasks becomes. ConfigurationError."""
    mode = shuffle_mode_of(settings)
    is_pipelined = mode is BatchShuffleMode.ALL_EXCHANGES_PIPELINED
    if is_pipelined and settings.get_option(APPROXIMATE_LOCAL_RECOVERY):
        return ResultPartitionType.PIPELINED_APPROXIMATE
    return mode.result_type


def buffer_timeout_of(result_type: ResultPartitionType, stated_ms: int) -> int:
    """Return the buffer timeout of an edge: none where nobody reads while its producer runs."""
    return NO_BUFFER_TIMEOUT if result_type.traits.is_blocking else stated_ms
