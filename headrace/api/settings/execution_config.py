"""ExecutionConfig: settings of one program's execution, as a live view of the environment's settings.

RuntimeExecutionMode under the name that PyFlink's module has; the graph defines it.
"""

from collections.abc import Mapping
from datetime import timedelta
from typing import Final

from headrace.api.settings.program_settings import ProgramSettings
from headrace.api.settings.pyflink_refusals import GoneExecutionSettings, JvmExecutionSettings
from headrace.checkpoint.options import CHECKPOINTS_UNOBEYED
from headrace.core.config import ConfigOption
from headrace.graph.job_graph_generator import AUTO_GENERATE_UIDS, RuntimeExecutionMode
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

SNAPSHOT_COMPRESSION: Final = ConfigOption(
    "execution.checkpointing.snapshot-compression",
    bool,
    default=False,
    doc="Whether snapshots are compressed.",
    unobeyed=CHECKPOINTS_UNOBEYED,
)
CLOSURE_CLEANER: Final = ConfigOption(
    "pipeline.closure-cleaner-level",
    str,
    default="RECURSIVE",
    doc="How far functions are cut loose from what they refer to and do not use: NONE, TOP_LEVEL or RECURSIVE.",
    unobeyed="functions are pickled with what they refer to",
)


class ExecutionConfig(JvmExecutionSettings, GoneExecutionSettings):
    """Setters return the object; changes hold for operators that are made afterwards.

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
        """The default parallelism, -1 where it is left to the executor."""
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
        """The number of key groups, -1 where it is derived."""
        return self._settings.get(MAX_PARALLELISM)

    def set_max_parallelism(self, max_parallelism: int) -> "ExecutionConfig":
        """Set the number of key groups, 1..32768."""
        if not 1 <= max_parallelism <= 32768:
            raise ValueError(f"max parallelism must be within 1..32768, not {max_parallelism}")
        self._settings.set(MAX_PARALLELISM, max_parallelism)
        return self

    def get_auto_watermark_interval(self) -> int:
        """Milliseconds between periodic watermarks."""
        return _millis(self._settings.get(AUTO_WATERMARK_INTERVAL))

    def set_auto_watermark_interval(self, interval: int) -> "ExecutionConfig":
        """Set it, in ms; 0 turns periodic watermarks off."""
        return self._set_millis(AUTO_WATERMARK_INTERVAL, interval)

    def get_latency_tracking_interval(self) -> int:
        """Milliseconds between the latency markers of each source's subtasks; 0: there are none."""
        return _millis(self._settings.get(LATENCY_INTERVAL))

    def set_latency_tracking_interval(self, interval: int) -> "ExecutionConfig":
        """Have each subtask of a source send a latency marker every so many ms; 0: none.

        Operators note how old those are that reach them: see the metric `latency`.
        """
        return self._set_millis(LATENCY_INTERVAL, interval)

    def get_task_cancellation_interval(self) -> int:
        """Milliseconds that were set; a task is asked to end once, and Python can interrupt no thread."""
        return _millis(self._settings.get(TASK_CANCELLATION_INTERVAL))

    def set_task_cancellation_interval(self, interval: int) -> "ExecutionConfig":
        """Kept and shown, in ms; what bounds a cancellation here is `set_task_cancellation_timeout`."""
        return self._set_millis(TASK_CANCELLATION_INTERVAL, interval)

    def get_task_cancellation_timeout(self) -> int:
        """Milliseconds until a TaskManager whose task does not end is given up."""
        return _millis(self._settings.get(TASK_CANCELLATION_TIMEOUT))

    def set_task_cancellation_timeout(self, timeout: int) -> "ExecutionConfig":
        """Set it, in ms."""
        return self._set_millis(TASK_CANCELLATION_TIMEOUT, timeout)

    def enable_closure_cleaner(self) -> "ExecutionConfig":
        """Kept and given back: functions are pickled with what they refer to."""
        self._settings.unset(CLOSURE_CLEANER)
        return self

    def disable_closure_cleaner(self) -> "ExecutionConfig":
        self._settings.set(CLOSURE_CLEANER, "NONE")
        return self

    def is_closure_cleaner_enabled(self) -> bool:
        return self._settings.get(CLOSURE_CLEANER).upper() != "NONE"

    def enable_auto_generated_uids(self) -> "ExecutionConfig":
        """Operators without a uid get an id from the program's structure."""
        self._settings.set(AUTO_GENERATE_UIDS, True)
        return self

    def disable_auto_generated_uids(self) -> "ExecutionConfig":
        """Every operator needs a uid from now on."""
        self._settings.set(AUTO_GENERATE_UIDS, False)
        return self

    def has_auto_generated_uids_enabled(self) -> bool:
        return self._settings.get(AUTO_GENERATE_UIDS)

    def enable_object_reuse(self) -> "ExecutionConfig":
        """Records may be handed on without copying; they always are."""
        self._settings.set(OBJECT_REUSE, True)
        return self

    def disable_object_reuse(self) -> "ExecutionConfig":
        self._settings.set(OBJECT_REUSE, False)
        return self

    def is_object_reuse_enabled(self) -> bool:
        return self._settings.get(OBJECT_REUSE)

    def get_global_job_parameters(self) -> dict[str, str]:
        """The parameters that functions read with `get_job_parameter`."""
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
        return self._settings.get(SNAPSHOT_COMPRESSION)

    def set_use_snapshot_compression(self, use_snapshot_compression: bool) -> "ExecutionConfig":
        self._settings.set(SNAPSHOT_COMPRESSION, use_snapshot_compression)
        return self

    def _set_millis(self, option: ConfigOption[timedelta], millis: int) -> "ExecutionConfig":
        if millis < 0:
            raise ValueError(f"{option.key} cannot be negative, but is {millis}")
        self._settings.set(option, timedelta(milliseconds=millis))
        return self

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ExecutionConfig):
            return NotImplemented
        return self._settings.to_settings().to_dict() == other._settings.to_settings().to_dict()

    __hash__ = None  # type: ignore[assignment]  # mutable

    def __repr__(self) -> str:
        return f"ExecutionConfig({self._settings.to_settings().to_dict()})"


def _millis(duration: timedelta) -> int:
    return duration // timedelta(milliseconds=1)


__all__ = ["RuntimeExecutionMode"]
