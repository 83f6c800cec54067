"""LeaderRetrievalService: tells clients where the leader of a cluster serves them, wherever it was elected.

Source: Flink LeaderRetrievalService.
"""

from typing import Final

from headrace.checkpoint.errors import CheckpointError
from headrace.cluster.high_availability.coordination import Coordination, open_coordination
from headrace.core.config import Settings
from headrace.core.randomness import system_random


class LeaderRetrievalService:
    """Looks a leader up. Calls block; one at a time."""

    def __init__(self, coordination: Coordination) -> None:
        self._coordination: Final = coordination

    def leader_address(self) -> str:
        """Return the address of REST of who leads, or led last; empty where it is not known at this moment.

        RecordNotTrustedError where somebody else has written the record, or this client has another key.
        """
        try:
            record = self._coordination.records.newest()
        except CheckpointError as error:
            if not error.recoverable:
                raise
            return ""
        return "" if record is None or record.is_released else record.address

    def close(self) -> None:
        """End the connection to a service. Idempotent."""
        self._coordination.close()


def open_leader_retrieval(settings: Settings) -> LeaderRetrievalService:
    """Return the service of the cluster that the settings name. ConfigurationError, and what a service raises."""
    return LeaderRetrievalService(open_coordination(settings, system_random()))
