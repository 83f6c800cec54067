"""ExecutionConfig: settings of one program's execution, as a live view of the environment's settings."""

from collections.abc import Mapping
from typing import Final

from headrace.api.settings.program_settings import ProgramSettings, check_max_parallelism
from headrace.api.settings.pyflink_refusals import GoneExecutionSettings, JvmExecutionSettings
from headrace.core.errors import ProgramError
from headrace.graph.job_graph_generator import AUTO_GENERATE_UIDS
from headrace.graph.pipeline_options import (
    AUTO_WATERMARK_INTERVAL,
    GLOBAL_JOB_PARAMETERS_PREFIX,
    MAX_PARALLELISM,
    OBJECT_REUSE,
    PARALLELISM,
    TASK_CANCELLATION_INTERVAL,
    TASK_CANCELLATION_TIMEOUT,
    global_job_parameters,
)
from headrace.metrics.latency import LATENCY_INTERVAL


class ExecutionConfig(JvmExecutionSettings, GoneExecutionSettings):
    """Settings of execution. Setters return the object; they apply to operators that are made afterwards.

    Example:
        >>> config = ExecutionConfig()
        >>> config.set_auto_watermark_interval(50).get_auto_watermark_interval()
        50
    """

    PARALLELISM_DEFAULT: Final = -1
    PARALLELISM_UNKNOWN: Final = -2

    def __init__(self, settings: ProgramSettings | None = None) -> None:
        self._settings = ProgramSettings() if settings is None else settings

    def get_parallelism(self) -> int:
        """Return the default parallelism; -1 if it is left to the executor."""
        return self._settings.get(PARALLELISM)

    def set_parallelism(self, parallelism: int) -> "ExecutionConfig":
        """Set the default parallelism, at least 1 (or PARALLELISM_DEFAULT)."""
        if not isinstance(parallelism, int):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError(f"parallelism must be an int, not {parallelism!r}")
        if parallelism < 1 and parallelism != self.PARALLELISM_DEFAULT:
            raise ValueError(
                f"parallelism must be at least 1, or -1 for the default, not {parallelism}"
            )
        self._settings.set(PARALLELISM, parallelism)
        return self

    def get_max_parallelism(self) -> int:
        """Return the number of key groups; -1 if it is derived from the parallelism."""
        return self._settings.get(MAX_PARALLELISM)

    def set_max_parallelism(self, max_parallelism: int) -> "ExecutionConfig":
        """Set the number of key groups, 1..32768."""
        self._settings.set(MAX_PARALLELISM, check_max_parallelism(max_parallelism))
        return self

    def get_auto_watermark_interval(self) -> int:
        """Return the milliseconds between periodic watermarks."""
        return self._settings.get_millis(AUTO_WATERMARK_INTERVAL)

    def set_auto_watermark_interval(self, interval: int) -> "ExecutionConfig":
        """Set the interval of periodic watermarks in ms; 0 turns them off."""
        self._settings.set_millis(AUTO_WATERMARK_INTERVAL, interval)
        return self

    def get_latency_tracking_interval(self) -> int:
        """Return the milliseconds between the latency markers of each source subtask; 0 means none are sent."""
        return self._settings.get_millis(LATENCY_INTERVAL)

    def set_latency_tracking_interval(self, interval: int) -> "ExecutionConfig":
        """Make each subtask of a source send a latency marker every `interval` ms; 0 turns them off.

        Operators record the age of the markers that they receive in the metric `latency`.
        """
        self._settings.set_millis(LATENCY_INTERVAL, interval)
        return self

    def get_task_cancellation_interval(self) -> int:
        """Return the interval in milliseconds, which is always Flink's default."""
        return self._settings.get_millis(TASK_CANCELLATION_INTERVAL)

    def set_task_cancellation_interval(self, interval: int) -> "ExecutionConfig":
        """Refuse any value but the default: a task is asked only once to end. Use `set_task_cancellation_timeout`."""
        self._settings.set_millis(TASK_CANCELLATION_INTERVAL, interval)
        return self

    def get_task_cancellation_timeout(self) -> int:
        """Return the milliseconds after which a TaskManager ends whose cancelled task has not ended; 0: never."""
        return self._settings.get_millis(TASK_CANCELLATION_TIMEOUT)

    def set_task_cancellation_timeout(self, timeout: int) -> "ExecutionConfig":
        """Set the timeout of task cancellation in ms."""
        self._settings.set_millis(TASK_CANCELLATION_TIMEOUT, timeout)
        return self

    def enable_auto_generated_uids(self) -> "ExecutionConfig":
        """Derive the ids of operators without a uid from the program's structure."""
        self._settings.set(AUTO_GENERATE_UIDS, True)
        return self

    def disable_auto_generated_uids(self) -> "ExecutionConfig":
        """Require a uid of every operator from now on."""
        self._settings.set(AUTO_GENERATE_UIDS, False)
        return self

    def has_auto_generated_uids_enabled(self) -> bool:
        return self._settings.get(AUTO_GENERATE_UIDS)

    def enable_object_reuse(self) -> "ExecutionConfig":
        """Pass records between the functions of a task without copying them."""
        self._settings.set(OBJECT_REUSE, True)
        return self

    def disable_object_reuse(self) -> "ExecutionConfig":
        self._settings.set(OBJECT_REUSE, False)
        return self

    def is_object_reuse_enabled(self) -> bool:
        return self._settings.get(OBJECT_REUSE)

    def get_global_job_parameters(self) -> dict[str, str]:
        """Return the parameters that functions read with `get_job_parameter`."""
        return global_job_parameters(self._settings.to_settings())

    def set_global_job_parameters(
        self, global_job_parameters_dict: Mapping[str, object]
    ) -> "ExecutionConfig":
        """Replace the parameters; values become text."""
        self._settings.remove_prefix(GLOBAL_JOB_PARAMETERS_PREFIX)
        for key, value in global_job_parameters_dict.items():
            self._settings.set_raw(GLOBAL_JOB_PARAMETERS_PREFIX + key, str(value))
        return self

    def is_use_snapshot_compression(self) -> bool:
        """Return True: state is always written compressed."""
        return True

    def set_use_snapshot_compression(self, use_snapshot_compression: bool) -> "ExecutionConfig":
        """Accept True, the only supported value; ProgramError for False."""
        if not use_snapshot_compression:
            raise ProgramError(
                "set_use_snapshot_compression(False): state is always written compressed, as Parquet files: "
                "remove the call"
            )
        return self

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ExecutionConfig):
            return NotImplemented
        return self._settings.to_settings().to_dict() == other._settings.to_settings().to_dict()

    __hash__ = None  # type: ignore[assignment]  # mutable

    def __repr__(self) -> str:
        return f"ExecutionConfig({self._settings.to_settings().to_dict()})"
