"""LeaderRetrievalService: finds the address of a cluster's leader for clients, for every kind of election.

Source: Flink LeaderRetrievalService.
"""

from typing import Final

from headrace.checkpoint.errors import CheckpointError
from headrace.cluster.high_availability.coordination import Coordination, open_coordination
from headrace.core.config import Settings
from headrace.core.randomness import system_random


class LeaderRetrievalService:
    """Looks up the leader's address. Calls block; one at a time."""

    def __init__(self, coordination: Coordination) -> None:
        self._coordination: Final = coordination

    def leader_address(self) -> str:
        """Return the REST address of the process that leads or led last; empty if it is not known now.

        RecordNotTrustedError if another program wrote the record, or this client has another key.
        """
        try:
            record = self._coordination.records.newest()
        except CheckpointError as error:
            if not error.recoverable:
                raise
            return ""
        return "" if record is None or record.is_released else record.address

    def close(self) -> None:
        """Close the connection to a service. Idempotent."""
        self._coordination.close()


def open_leader_retrieval(settings: Settings) -> LeaderRetrievalService:
    """Return the service for the cluster that the settings name.

    ConfigurationError, or an error of the election's service.
    """
    return LeaderRetrievalService(open_coordination(settings, system_random()))
