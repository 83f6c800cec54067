"""Processes that contend for one cluster on a time of their own making: clocks that differ, processes that sleep."""

import random
from pathlib import Path
from typing import Final

from headrace.checkpoint.storage.metadata_key import MetadataKey
from headrace.cluster.high_availability.leader_election_service import (
    LeaderElectionService,
    LeadershipLostError,
)
from headrace.cluster.high_availability.leader_files import LeaderFiles
from headrace.cluster.high_availability.lease import LeaseTerms
from headrace.cluster.high_availability.process_lock import ProcessLock
from headrace.core.clock import ManualClock

TERMS: Final = LeaseTerms(lease_duration_ms=6_000, renew_deadline_ms=4_000, retry_period_ms=1_000)
KEY: Final = MetadataKey(b"k" * 32)


def leader_files(folder: Path, seed: int = 1, cluster: str = "test") -> LeaderFiles:
    return LeaderFiles(str(folder), cluster, KEY, random.Random(seed))


class Contender:
    """A process with a clock that shows another time than the true one, and runs at another rate."""

    def __init__(
        self,
        folder: Path,
        name: str,
        seed: int,
        *,
        rate: float = 1.0,
        offset_ms: int = 0,
        process_lock: ProcessLock | None = None,
    ) -> None:
        self.name: Final = name
        self.clock: Final = ManualClock(offset_ms)
        self.election: Final = LeaderElectionService(
            leader_files(folder, seed), TERMS, self.clock, "test", name, process_lock
        )
        self.sleeps_until_ms = 0.0
        self._rate: Final = rate
        self._due_ms = 0.0

    @property
    def leads(self) -> bool:
        """Whether it would write at this moment."""
        try:
            self.election.validate()
        except LeadershipLostError:
            return False
        return True

    def pass_time(self, duration_ms: float) -> None:
        self.clock.advance_ms(duration_ms * self._rate)

    def run(self, true_ms: float) -> None:
        """Take the steps that are due, unless it sleeps."""
        if true_ms < self.sleeps_until_ms:
            return
        while self._due_ms <= true_ms:
            self._due_ms = true_ms + self.election.step() / self._rate
            if self._due_ms <= true_ms:
                self._due_ms = true_ms + 1
