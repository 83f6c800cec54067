"""CheckpointConfig: settings of checkpoints, as a live view of the environment's settings.

`check_checkpoints` looks at the checkpoint settings of a job that is submitted: impossible ones are errors, and those
that may lose output are warned of.
Source: Flink CheckpointConfig.
"""

import logging
from typing import Final

from headrace.api.settings.program_settings import ProgramSettings
from headrace.api.settings.pyflink_refusals import GoneCheckpointSettings
from headrace.checkpoint.options import (
    AFTER_TASKS_FINISH,
    ALIGNED_TIMEOUT,
    FORCE_UNALIGNED,
    INTERVAL,
    MAX_CONCURRENT,
    MIN_PAUSE,
    MODE,
    RETENTION,
    TIMEOUT,
    TOLERABLE_FAILURES,
    UNALIGNED,
    CheckpointingMode,
    ExternalizedCheckpointRetention,
    member_of,
)
from headrace.core.config import Settings
from headrace.core.errors import ProgramError
from headrace.core.types.time_values import Duration
from headrace.graph.job_graph import JobGraph
from headrace.graph.pipeline_options import BATCH_SHUFFLE_MODE

UNLIMITED_FAILURES: Final = 2**31 - 1

_LOG: Final = logging.getLogger(__name__)


class CheckpointConfig(GoneCheckpointSettings):
    """Settings of checkpoints. Setters return the object; times are milliseconds.

    Example:
        >>> CheckpointConfig().set_checkpoint_timeout(60_000).get_checkpoint_timeout()
        60000
    """

    # PyFlink 1.x had these.
    DEFAULT_MODE: Final = CheckpointingMode.EXACTLY_ONCE
    DEFAULT_TIMEOUT: Final = 600_000
    DEFAULT_MIN_PAUSE_BETWEEN_CHECKPOINTS: Final = 0
    DEFAULT_MAX_CONCURRENT_CHECKPOINTS: Final = 1

    def __init__(self, settings: ProgramSettings | None = None) -> None:
        self._settings = ProgramSettings() if settings is None else settings

    def is_checkpointing_enabled(self) -> bool:
        """Return whether an interval above 0 is set."""
        return self.get_checkpoint_interval() > 0

    def get_checkpointing_mode(self) -> CheckpointingMode:
        """Return the mode; AT_LEAST_ONCE while checkpointing is off, as in Flink."""
        if not self.is_checkpointing_enabled():
            return CheckpointingMode.AT_LEAST_ONCE
        return member_of(CheckpointingMode, self._settings.to_settings(), MODE)

    def set_checkpointing_mode(self, checkpointing_mode: CheckpointingMode) -> "CheckpointConfig":
        self._settings.set(MODE, checkpointing_mode.name)
        return self

    def get_checkpoint_interval(self) -> int:
        """Return the interval in milliseconds; -1 while checkpointing is off."""
        return self._settings.get_millis(INTERVAL)

    def set_checkpoint_interval(self, checkpoint_interval: int) -> "CheckpointConfig":
        self._settings.set_millis(INTERVAL, checkpoint_interval, least=10)
        return self

    def get_checkpoint_timeout(self) -> int:
        return self._settings.get_millis(TIMEOUT)

    def set_checkpoint_timeout(self, checkpoint_timeout: int) -> "CheckpointConfig":
        self._settings.set_millis(TIMEOUT, checkpoint_timeout, least=10)
        return self

    def get_min_pause_between_checkpoints(self) -> int:
        return self._settings.get_millis(MIN_PAUSE)

    def set_min_pause_between_checkpoints(
        self, min_pause_between_checkpoints: int
    ) -> "CheckpointConfig":
        self._settings.set_millis(MIN_PAUSE, min_pause_between_checkpoints, least=0)
        return self

    def get_max_concurrent_checkpoints(self) -> int:
        return self._settings.get(MAX_CONCURRENT)

    def set_max_concurrent_checkpoints(self, max_concurrent_checkpoints: int) -> "CheckpointConfig":
        if max_concurrent_checkpoints < 1:
            raise ValueError("The maximum number of concurrent attempts must be at least one.")
        self._settings.set(MAX_CONCURRENT, max_concurrent_checkpoints)
        return self

    def is_fail_on_checkpointing_errors(self) -> bool:
        """Return whether no failed checkpoint is tolerated."""
        return self.get_tolerable_checkpoint_failure_number() == 0

    def set_fail_on_checkpointing_errors(
        self, fail_on_checkpointing_errors: bool
    ) -> "CheckpointConfig":
        """Set no tolerated checkpoint failure for True, and any number of them for False."""
        return self.set_tolerable_checkpoint_failure_number(
            0 if fail_on_checkpointing_errors else UNLIMITED_FAILURES
        )

    def get_tolerable_checkpoint_failure_number(self) -> int:
        return self._settings.get(TOLERABLE_FAILURES)

    def set_tolerable_checkpoint_failure_number(
        self, tolerable_checkpoint_failure_number: int
    ) -> "CheckpointConfig":
        if tolerable_checkpoint_failure_number < 0:
            raise ValueError("The tolerable failure checkpoint number must be non-negative.")
        self._settings.set(TOLERABLE_FAILURES, tolerable_checkpoint_failure_number)
        return self

    def set_externalized_checkpoint_retention(
        self, retention_mode: ExternalizedCheckpointRetention
    ) -> "CheckpointConfig":
        self._settings.set(RETENTION, retention_mode.name)
        return self

    def is_externalized_checkpoints_enabled(self) -> bool:
        none = ExternalizedCheckpointRetention.NO_EXTERNALIZED_CHECKPOINTS
        return self.get_externalized_checkpoint_retention() is not none

    def get_externalized_checkpoint_retention(self) -> ExternalizedCheckpointRetention:
        return member_of(ExternalizedCheckpointRetention, self._settings.to_settings(), RETENTION)

    def is_unaligned_checkpoints_enabled(self) -> bool:
        """Return whether checkpoints may be unaligned; as in Flink, never with AT_LEAST_ONCE."""
        is_exact = self.get_checkpointing_mode() is CheckpointingMode.EXACTLY_ONCE
        return is_exact and self._settings.get(UNALIGNED)

    def enable_unaligned_checkpoints(self, enabled: bool = True) -> "CheckpointConfig":
        self._settings.set(UNALIGNED, enabled)
        return self

    def disable_unaligned_checkpoints(self) -> "CheckpointConfig":
        return self.enable_unaligned_checkpoints(False)

    def set_aligned_checkpoint_timeout(self, alignment_timeout: Duration) -> "CheckpointConfig":
        self._settings.set_millis(ALIGNED_TIMEOUT, alignment_timeout.to_millis(), least=0)
        return self

    def get_aligned_checkpoint_timeout(self) -> Duration:
        return Duration.of_timedelta(self._settings.get(ALIGNED_TIMEOUT))

    def set_alignment_timeout(self, alignment_timeout: Duration) -> "CheckpointConfig":
        """Set the timeout; older name of `set_aligned_checkpoint_timeout`."""
        return self.set_aligned_checkpoint_timeout(alignment_timeout)

    def get_alignment_timeout(self) -> Duration:
        """Return the timeout; older name of `get_aligned_checkpoint_timeout`."""
        return self.get_aligned_checkpoint_timeout()

    def set_force_unaligned_checkpoints(
        self, force_unaligned_checkpoints: bool = True
    ) -> "CheckpointConfig":
        self._settings.set(FORCE_UNALIGNED, force_unaligned_checkpoints)
        return self

    def is_force_unaligned_checkpoints(self) -> bool:
        return self._settings.get(FORCE_UNALIGNED)


def check_checkpoints(graph: JobGraph, settings: Settings) -> None:
    """Raise ProgramError for checkpoints that could never be taken; warn if the last output would not be committed."""
    if settings.duration_ms(INTERVAL) <= 0:
        return
    if graph.has_cached_streams:
        raise ProgramError(
            "a job that makes or reads a cached stream runs one task after the other, and checkpoints need all of them "
            f"at once: unset {INTERVAL.key} for it"
        )
    if any(edge.result_type.traits.is_blocking for edge in graph.edges):
        raise ProgramError(
            f"{BATCH_SHUFFLE_MODE.key} {settings.get_option(BATCH_SHUFFLE_MODE)} runs one task after the other, and "
            f"checkpoints need all of them at once: unset {INTERVAL.key}, or let exchanges be pipelined"
        )
    committing = [
        operator.name
        for vertex in graph.vertices
        for operator in vertex.operators
        if operator.committer
    ]
    if committing and not settings.get_option(AFTER_TASKS_FINISH):
        _LOG.warning(
            "%s is false: the tasks of job '%s' finish without a final checkpoint, so that output of %s since the last "
            "checkpoint will not be committed, although the job ends as FINISHED. Unset the setting, or end the job "
            "with stop_with_savepoint()",
            AFTER_TASKS_FINISH.key,
            graph.name,
            " and ".join(f"'{name}'" for name in committing),
        )
