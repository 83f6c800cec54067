"""Whether to go on asking for a partition that its TaskManager does not have: the state of its producer decides.

A producer that is on its way, runs or has just finished is asked again. Where it was cancelled, failed or belongs to
an attempt that is over, the consumer is cancelled rather than failed: what became of the producer is the cause, and
stays the one that is reported. Source: Flink PartitionProducerStateChecker, RemoteChannelStateChecker.
"""

import enum
from collections.abc import Callable, Mapping
from typing import Final

from headrace.core.ids import ResultPartitionId
from headrace.core.lifecycle import ExecutionState


class ProducerVerdict(enum.Enum):
    """What a consumer does about a partition that was not found."""

    ASK_AGAIN = "ASK_AGAIN"
    CANCEL = "CANCEL"
    FAIL = "FAIL"


AnswerVerdict = Callable[[ProducerVerdict], None]
CheckProducer = Callable[[ResultPartitionId, AnswerVerdict], None]
"""Asks for the verdict on a partition's producer; answered once or, where nobody can tell any more, never."""

_V: Final = ProducerVerdict
VERDICTS: Final[Mapping[ExecutionState, ProducerVerdict]] = {
    ExecutionState.CREATED: _V.FAIL,  # nobody deploys a consumer before its producer
    ExecutionState.SCHEDULED: _V.ASK_AGAIN,
    ExecutionState.DEPLOYING: _V.ASK_AGAIN,
    ExecutionState.INITIALIZING: _V.ASK_AGAIN,
    ExecutionState.RUNNING: _V.ASK_AGAIN,
    ExecutionState.FINISHED: _V.ASK_AGAIN,
    ExecutionState.CANCELING: _V.CANCEL,
    ExecutionState.CANCELED: _V.CANCEL,
    ExecutionState.FAILED: _V.CANCEL,
}


def verdict_on(state: ExecutionState | None) -> ProducerVerdict:
    """Return what the state of a producer means for its consumer; None: that attempt is over and forgotten."""
    return ProducerVerdict.CANCEL if state is None else VERDICTS[state]
