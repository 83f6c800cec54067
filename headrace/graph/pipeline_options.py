"""Options of one program: parallelism, chaining, name, watermarks, buffer timeout, Python files, exchanges of tasks.

The shuffle mode of a job decides the result type of each edge between two tasks.
Source: Flink PipelineOptions, ExecutionOptions, CoreOptions, PythonOptions, BatchShuffleMode.
"""

import enum
from collections.abc import Mapping
from datetime import timedelta
from typing import Any, Final

from headrace.core.config import ConfigOption, Settings, SizeBytes, withdraw_options
from headrace.core.shuffle_descriptors import ResultPartitionType

DEFAULT_JOB_NAME: Final = "Flink Streaming Job"
GLOBAL_JOB_PARAMETERS_PREFIX: Final = "pipeline.global-job-parameters."
"""Prefix of global job parameters, each of which is one setting."""

FREE_PREFIXES: Final = (
    "spark.",
    GLOBAL_JOB_PARAMETERS_PREFIX,
    "metrics.reporter.",
    "external-resource.",
)
"""Prefixes of keys that no option declares: those of Spark, of the program, and of reporters, which check their own
keys.
"""

PARALLELISM: Final = ConfigOption(
    "parallelism.default",
    int,
    default=-1,
    doc="Parallelism of operators that set none; -1 leaves it to the executor (its number of slots).",
)
MAX_PARALLELISM: Final = ConfigOption(
    "pipeline.max-parallelism",
    int,
    default=-1,
    doc="Number of key groups, 1..32768; -1 derives it from each operator's parallelism.",
)
OPERATOR_CHAINING: Final = ConfigOption(
    "pipeline.operator-chaining.enabled",
    bool,
    default=True,
    doc="Whether operators that need no exchange between them run in one task.",
    deprecated_keys=("pipeline.operator-chaining",),
)
CHAIN_DIFFERENT_MAX_PARALLELISM: Final = ConfigOption(
    "pipeline.operator-chaining.chain-operators-with-different-max-parallelism",
    bool,
    default=True,
    doc="Whether operators of different max parallelism may be chained.",
)
PIPELINE_NAME: Final = ConfigOption(
    "pipeline.name", str, default="", doc="Name of the job if execute() is called without one."
)
AUTO_WATERMARK_INTERVAL: Final = ConfigOption(
    "pipeline.auto-watermark-interval",
    timedelta,
    default=timedelta(milliseconds=200),
    doc="Time between two periodic watermarks; 0 switches them off.",
)
WATERMARK_IDLE_TIMEOUT: Final = ConfigOption(
    "headrace.watermarks.idle-timeout",
    timedelta,
    default=timedelta(minutes=1),
    doc="Time after which a silent unbounded input no longer holds event time back, if its watermark strategy sets "
    "no idleness; 0: never. Time under back pressure does not count, and bounded inputs are always waited for.",
)
WATERMARK_MAX_AHEAD: Final = ConfigOption(
    "headrace.watermarks.max-ahead",
    timedelta,
    default=timedelta(0),
    doc="Records whose timestamps are further ahead of the clock do not move event time, so that one wrong clock does "
    "not make the records of others late; they are counted in numRecordsAheadOfTime and processed as usual. 0: all "
    "records move it.",
)
ALLOW_UNALIGNED_SOURCE_SPLITS: Final = ConfigOption(
    "pipeline.watermark-alignment.allow-unaligned-source-splits",
    bool,
    default=False,
    doc="Whether a reader of several splits that cannot pause some of them may be aligned as a whole; otherwise "
    "watermark alignment fails the job.",
)
OBJECT_REUSE: Final = ConfigOption(
    "pipeline.object-reuse",
    bool,
    default=False,
    doc="Whether the functions of one task pass records to each other without copying. If not, mutable records (lists, "
    "dicts, rows, objects) are copied when a function emits them, so that no function sees later changes of another "
    "one.",
)
BUFFER_TIMEOUT_ENABLED: Final = ConfigOption(
    "execution.buffer-timeout.enabled",
    bool,
    default=True,
    doc="Whether partly filled buffers are sent after the interval.",
)
BUFFER_TIMEOUT: Final = ConfigOption(
    "execution.buffer-timeout.interval",
    timedelta,
    default=timedelta(milliseconds=100),
    doc="Longest wait before a partly filled buffer is sent; 0 sends after every record, -1 only full ones.",
    deprecated_keys=("execution.buffer-timeout",),
    least=timedelta(milliseconds=-1),
)
PYTHON_OPERATOR_CHAINING: Final = ConfigOption(
    "python.operator-chaining.enabled",
    bool,
    default=True,
    doc="Whether plans show chained operators around Python functions as one node.",
)
PYTHON_FILES: Final = ConfigOption(
    "python.files",
    str,
    default="",
    doc="Files, packages or archives, separated by commas, put on the import path of client and workers.",
)
CACHED_FILES: Final = ConfigOption(
    "pipeline.cached-files",
    str,
    default="",
    doc="Files by name, `name:a,path:/a;name:b,path:/b`, which are shipped with the job, as register_cached_file "
    "sets them; "
    "functions find them with get_distributed_cache of their runtime context.",
)
PYTHON_REQUIREMENTS: Final = ConfigOption(
    "python.requirements",
    str,
    default="",
    doc="A requirements file, from which each host makes a virtual environment on top of the workers' packages, "
    "once. The job's TaskManagers run in it. With `file#folder` packages are installed only from that folder, "
    "without a network.",
)
PYTHON_ARCHIVES: Final = ConfigOption(
    "python.archives",
    str,
    default="",
    doc="Archives, separated by commas, unpacked once on each host; functions find the folder with "
    "get_distributed_cache of their runtime context, under the file's name or that of `path#name`.",
)
PYTHON_EXECUTABLE: Final = ConfigOption(
    "python.executable",
    str,
    default="",
    doc="Interpreter of the job's TaskManagers, of the driver's version and with its packages: its path on every host, "
    "or one in an archive of python.archives (`venv.zip/venv/bin/python`). For a job with a cluster of its own, a "
    "path sets spark.pyspark.python unless that is set. Otherwise the job gets TaskManagers of its own, with one "
    "slot each.",
)
ARTIFACT_SIZE_MAX: Final = ConfigOption(
    "headrace.artifacts.size-max",
    SizeBytes,
    SizeBytes(1 << 30),
    "Largest total size of the files of one job, both packed and unpacked.",
)
_IN_THE_WORKER: Final = "functions run in the worker process itself"
_NO_CACHE: Final = "state is in the process of the functions that read it"

PYTHON_WITHOUT_EFFECT: Final[tuple[ConfigOption[Any], ...]] = (
    ConfigOption(
        "python.fn-execution.bundle.size", int, 1000,
        "Number of records that are passed to a Python process together.", unobeyed=_IN_THE_WORKER,
    ),
    ConfigOption(
        "python.fn-execution.bundle.time", int, 1000,
        "Milliseconds after which an incomplete bundle is passed on.", unobeyed=_IN_THE_WORKER,
    ),
    ConfigOption(
        "python.fn-execution.arrow.batch.size", int, 1000,
        "Rows of a batch for vectorised functions.",
        unobeyed="functions receive batches as they arrive",
    ),
    ConfigOption(
        "python.fn-execution.memory.managed", bool, True,
        "Whether Python processes take part in managed memory.", unobeyed=_IN_THE_WORKER,
    ),
    ConfigOption(
        "python.execution-mode", str, "process",
        "Whether functions run in a `process` or a `thread` of their own.", unobeyed=_IN_THE_WORKER,
    ),
    ConfigOption(
        "python.state.cache-size", int, 1000,
        "Number of values of state that a Python process caches.", unobeyed=_NO_CACHE,
    ),
    ConfigOption(
        "python.map-state.read-cache-size", int, 1000,
        "Number of entries read from a map state that a Python process caches.", unobeyed=_NO_CACHE,
    ),
    ConfigOption(
        "python.map-state.write-cache-size", int, 1000,
        "Number of entries put into a map state that a Python process caches.", unobeyed=_NO_CACHE,
    ),
    ConfigOption(
        "python.map-state.iterate-response-batch-size", int, 1000,
        "Number of entries of a map state that are fetched together.", unobeyed=_NO_CACHE,
    ),
    ConfigOption(
        "python.logging.default.level", str, "INFO", "Level of the functions' loggers.",
        unobeyed="set levels with Python's logging, in open()",
    ),
    ConfigOption(
        "python.logging.level.overrides", str, "", "Levels of single loggers: `logger: LEVEL, ...`.",
        unobeyed="set levels with Python's logging, in open()",
    ),
    ConfigOption(
        "python.client.executable", str, "python", "Interpreter of the program.",
        unobeyed="a program runs in the interpreter that it was started with",
    ),
)  # fmt: skip
"""Options that tune Flink's Python processes, whose results do not depend on them.

Ported programs may set them; a job is told that they have no effect.
"""
PYTHON_REFUSED: Final[tuple[ConfigOption[Any], ...]] = (
    ConfigOption(
        "python.metric.enabled", bool, True, "Whether functions may have metrics.",
        refused="functions always may have metrics: leave out those that nobody reads",
    ),
    ConfigOption(
        "python.profile.enabled", bool, False, "Whether functions are profiled.",
        refused="look at a task's flame graph in the dashboard, or use 'headrace flamegraph'",
    ),
    ConfigOption(
        "python.systemenv.enabled", bool, True,
        "Whether functions see the environment variables of their host.",
        refused="functions always see those of Spark's Python workers: unset there what they must not see",
    ),
    ConfigOption(
        "python.pythonpath", str, "", "Folders before all others on the workers' import path.",
        refused="bring modules and packages with python.files",
    ),
)  # fmt: skip
"""Options of Flink's Python processes by which a program would behave otherwise than here."""

TASK_CANCELLATION_TIMEOUT: Final = ConfigOption(
    "task.cancellation.timeout",
    timedelta,
    default=timedelta(minutes=3),
    doc="Time after the cancellation of a task after which the process of its TaskManager ends if the task has not "
    "ended. 0: never.",
)
TASK_CANCELLATION_INTERVAL: Final = ConfigOption(
    "task.cancellation.interval",
    timedelta,
    default=timedelta(seconds=30),
    doc="Time between two attempts to interrupt a task that is being cancelled.",
    refused=f"a task is asked only once to end; to limit its time, use {TASK_CANCELLATION_TIMEOUT.key}",
)


def global_job_parameters(settings: Mapping[str, str]) -> dict[str, str]:
    """Return the job parameters that functions read, from a job's settings."""
    prefix = GLOBAL_JOB_PARAMETERS_PREFIX
    return {key[len(prefix) :]: value for key, value in settings.items() if key.startswith(prefix)}


def archive_interpreter(settings: Settings) -> str:
    """Return `python.executable` if it names a file in one of `python.archives`, else an empty string."""
    executable = settings.get_option(PYTHON_EXECUTABLE).removeprefix("./")
    archives = [
        said.strip().partition("#") for said in settings.get_option(PYTHON_ARCHIVES).split(",")
    ]
    names = {name or path.rpartition("/")[2] for path, _, name in archives}
    name, _, path = executable.partition("/")
    return executable if name and path and name in names else ""


def cached_files(text: str) -> dict[str, str]:
    """Return the paths of `pipeline.cached-files` by name."""
    return {file["name"]: file["path"] for file in _cached_files(text)}


def executable_cached_files(text: str) -> set[str]:
    """Return the names of the files of `pipeline.cached-files` that are executable."""
    return {file["name"] for file in _cached_files(text) if file.get("executable") == "true"}


def _cached_files(text: str) -> list[dict[str, str]]:
    return [dict(part.split(":", 1) for part in one.split(",")) for one in text.split(";") if one]


class BatchShuffleMode(enum.Enum):
    """Kinds of exchange that a job may use. Names are Flink's."""

    ALL_EXCHANGES_PIPELINED = ResultPartitionType.PIPELINED_BOUNDED
    ALL_EXCHANGES_BLOCKING = ResultPartitionType.BLOCKING
    ALL_EXCHANGES_HYBRID_FULL = ResultPartitionType.HYBRID_FULL
    ALL_EXCHANGES_HYBRID_SELECTIVE = ResultPartitionType.HYBRID_SELECTIVE

    @property
    def result_type(self) -> ResultPartitionType:
        """Return the result type of every edge between two tasks, unless recovery may be approximate."""
        return self.value


BATCH_SHUFFLE_MODE: Final = ConfigOption(
    "execution.batch-shuffle-mode",
    str,
    default=BatchShuffleMode.ALL_EXCHANGES_PIPELINED.name,
    doc="How tasks of a bounded job exchange rows: ALL_EXCHANGES_PIPELINED, while the producer runs; "
    "ALL_EXCHANGES_BLOCKING, through files (io.tmp.dirs), once it has finished; ALL_EXCHANGES_HYBRID_FULL or "
    "ALL_EXCHANGES_HYBRID_SELECTIVE, while it runs, with files for all rows, or only for those that do not fit into "
    "memory.",
    choices=tuple(BatchShuffleMode.__members__),
)


class RuntimeExecutionMode(enum.Enum):
    """Modes of running a job. Values are PyFlink's. Source: Flink RuntimeExecutionMode."""

    STREAMING = 0
    BATCH = 1
    AUTOMATIC = 2


RUNTIME_MODE: Final = ConfigOption(
    "execution.runtime-mode",
    str,
    default=RuntimeExecutionMode.STREAMING.name,
    doc="STREAMING, BATCH (on stages of the program's own Spark) or AUTOMATIC (BATCH if every source is bounded).",
    choices=tuple(RuntimeExecutionMode.__members__),
)


def runs_in_batch(settings: Settings) -> bool:
    """Return whether a job with these settings, those of its JobGraph, runs in BATCH mode."""
    return settings.get_option(RUNTIME_MODE) == RuntimeExecutionMode.BATCH.name


IS_PREVIEW: Final = ConfigOption(
    "headrace.preview",
    bool,
    default=False,
    doc="Whether the job is a preview: queries of streaming DataFrames do not use their `checkpoint_location`. "
    "`DataStream.preview` sets it.",
)


APPROXIMATE_LOCAL_RECOVERY: Final = ConfigOption(
    "execution.state-recovery.approximate-local-recovery",
    bool,
    default=False,
    doc="Whether a failed task restarts only with its downstream tasks, while upstream tasks continue: records in "
    "transit to it are lost. Only for pipelined exchanges, without unaligned checkpoints.",
    deprecated_keys=("execution.checkpointing.approximate-local-recovery",),
)
NO_BUFFER_TIMEOUT: Final = -1


def shuffle_mode_of(settings: Settings) -> BatchShuffleMode:
    """Return the job's shuffle mode. ConfigurationError for an unknown name."""
    return BatchShuffleMode[settings.get_option(BATCH_SHUFFLE_MODE)]


def result_type_of(settings: Settings) -> ResultPartitionType:
    """Return the result type of every edge between two tasks. ConfigurationError."""
    mode = shuffle_mode_of(settings)
    is_pipelined = mode is BatchShuffleMode.ALL_EXCHANGES_PIPELINED
    if is_pipelined and settings.get_option(APPROXIMATE_LOCAL_RECOVERY):
        return ResultPartitionType.PIPELINED_APPROXIMATE
    return mode.result_type


def buffer_timeout_of(result_type: ResultPartitionType, stated_ms: int) -> int:
    """Return the buffer timeout of an edge: none if consumers read only after the producer has finished."""
    return NO_BUFFER_TIMEOUT if result_type.traits.is_blocking else stated_ms


withdraw_options(
    {"pipeline.closure-cleaner-level": "remove it: Python functions have no closures to clean"}
)
