"""PipelineExecutor: runs jobs. It is found by name through entry points, so that programs do not import their host."""

import atexit
import threading
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final, Protocol, runtime_checkable

from headrace.checkpoint.options import INTERVAL, RECOVERY_PATH
from headrace.core.config import ConfigOption, Settings
from headrace.core.entry_points import entry_point_names, load_entry_point
from headrace.core.errors import ConfigurationError, HostError, ProgramError
from headrace.graph.pipeline_options import IS_PREVIEW, RUNTIME_MODE, RuntimeExecutionMode

if TYPE_CHECKING:
    from headrace.api.client.job_client import JobClient, JobExecutionResult
    from headrace.core.ids import ClusterDataSetId
    from headrace.gateways.messages import DataSetInfo
    from headrace.graph.job_graph import JobGraph
    from headrace.graph.stream_graph import StreamGraph

ENTRY_POINT_GROUP: Final = "headrace.executors"
TARGET: Final = ConfigOption(
    "execution.target",
    str,
    default="spark",
    doc="Place where jobs run: `spark` (Flink's `local` and `application`): a cluster of the program's own; `session`: "
    "one of this machine that 'headrace cluster start' started; `remote`: the one at `rest.address`; `per-job`: a new "
    "cluster for each job, which ends with it; or another installed executor.",
)
REMOTE: Final = "remote"
"""Value of `execution.target`, and name of the executor, for clusters that run already."""
SESSION: Final = "session"
_ALIASES: Final = {"application": "spark", "local": "spark", SESSION: REMOTE}
"""Executors of those targets of Flink that have no executor of their own."""
PER_JOB: Final = "per-job"
_ELSEWHERE: Final = (REMOTE, PER_JOB)

PREVIEW_SETTINGS: Final = {
    # The program's own job reads on from its checkpoints: sources may delete, or commit as read, what these hold.
    INTERVAL.key: "0 ms",
    RECOVERY_PATH.key: "",
    # In BATCH mode there are no records before the job's end.
    RUNTIME_MODE.key: RuntimeExecutionMode.STREAMING.name,
    IS_PREVIEW.key: "true",
}
"""Settings of a preview's job, which override those of the program."""
ATTACHED: Final = ConfigOption(
    "execution.attached",
    bool,
    default=True,
    doc="Whether `execute` waits for the end of a job on a cluster that does not end with the program; if not, it "
    "returns once the cluster has taken the job.",
)


class PipelineExecutor(Protocol):
    """Takes job graphs to a cluster. Made as `executor_class(settings)` on first use."""

    @property
    def name(self) -> str:
        """Return the executor's name in `execution.target`."""
        ...

    def submit(self, job_graph: "JobGraph") -> "JobClient":
        """Submit a job and return its handle once the cluster has taken it; from the user's thread."""
        ...

    def default_parallelism(self) -> int:
        """Return the parallelism of programs that set none: the number of slots. May start the cluster to find out."""
        ...

    def known_parallelism(self) -> int | None:
        """Return the default parallelism without starting a cluster; None if it is not known yet."""
        ...

    def list_data_sets(self) -> "tuple[DataSetInfo, ...]":
        """Return the data sets that jobs left in the cluster; none if no cluster was started."""
        ...

    def release_data_set(self, data_set: "ClusterDataSetId") -> None:
        """Delete a data set that a job left, or is going to leave, in the cluster."""
        ...

    def close(self) -> None:
        """End the cluster if it is this executor's own; idempotent."""
        ...


@runtime_checkable
class SelectiveExecutor(Protocol):
    """An executor whose jobs run on one of several clusters, chosen by the settings."""

    def serves(self, settings: Settings) -> bool:
        """Return whether these settings mean this executor's cluster, and the cluster has not ended."""
        ...


class _Registry:
    """The executors of this process: the one that was set, and those made by name, which all environments share."""

    def __init__(self) -> None:
        self.active: PipelineExecutor | None = None
        self.on_submitted: Callable[[JobClient], None] | None = None
        self.on_planned: Callable[[StreamGraph, Settings], None] | None = None
        self.on_finished: Callable[[JobExecutionResult], None] | None = None
        self.made: dict[str, list[PipelineExecutor]] = {}
        self.default_settings: dict[str, str] = {}
        # Two threads of a program may submit their first jobs at once, and must find the same executor.
        self.lock = threading.Lock()


_registry: Final = _Registry()


def set_active_executor(
    executor: PipelineExecutor | None,
    on_submitted: "Callable[[JobClient], None] | None" = None,
    on_planned: "Callable[[StreamGraph, Settings], None] | None" = None,
    on_finished: "Callable[[JobExecutionResult], None] | None" = None,
) -> None:
    """Run every job of this process on `executor` from now on; None restores the look-up by name.

    `on_submitted` is called with each submitted job, `on_planned` with each plan before it is submitted, and
    `on_finished` with each result for which `execute` has waited.
    """
    _registry.active, _registry.on_submitted = executor, on_submitted
    _registry.on_planned, _registry.on_finished = on_planned, on_finished


def active_executor() -> PipelineExecutor | None:
    """Return the executor that was set for this process, if any."""
    return _registry.active


def job_submitted(client: "JobClient") -> None:
    """Tell the listener of `set_active_executor`, if there is one, that a job was submitted."""
    if _registry.on_submitted is not None:
        _registry.on_submitted(client)


def job_planned(graph: "StreamGraph", settings: Settings) -> None:
    """Tell the listener of `set_active_executor`, if there is one, that a job is about to be submitted."""
    if _registry.on_planned is not None:
        _registry.on_planned(graph, settings)


def job_finished(result: "JobExecutionResult") -> None:
    """Tell the listener of `set_active_executor`, if there is one, that `execute` has a result."""
    if _registry.on_finished is not None:
        _registry.on_finished(result)


def set_default_settings(settings: Mapping[str, str]) -> None:
    """Give settings to every environment made from now on, as `headrace run -D key=value` does."""
    _registry.default_settings = dict(settings)


def default_settings() -> dict[str, str]:
    """Return a copy of the settings that new environments begin with."""
    return dict(_registry.default_settings)


def create_executor(settings: Settings) -> PipelineExecutor:
    """Make the executor that `execution.target` names. ConfigurationError lists the known names."""
    refuse_unknown_target(settings)
    return load_entry_point(ENTRY_POINT_GROUP, executor_name(settings))(settings)


def refuse_unknown_target(settings: Settings) -> None:
    """Raise ConfigurationError, which lists the known names, if no executor is installed for `execution.target`."""
    names = entry_point_names(ENTRY_POINT_GROUP)
    if executor_name(settings) not in names:
        known = sorted({*names, *(target for target, of in _ALIASES.items() if of in names)})
        raise ConfigurationError(
            TARGET.key,
            settings.get_option(TARGET),
            f"no such executor is installed; there are: {', '.join(known) or 'none'}",
        )


def refuse_dataframe_elsewhere(job_graph: "JobGraph", executor: "PipelineExecutor") -> None:
    """Raise ProgramError if the program makes a DataFrame of a stream but jobs run outside its Spark application."""
    if executor.name != TARGET.default:
        raise ProgramError(
            f"a stream of '{job_graph.name}' is a DataFrame only in the Spark application that runs the program "
            f"({TARGET.key} {TARGET.default}), not with the executor '{executor.name}': write files and read them "
            f"with Spark"
        )


def executor_name(settings: Settings) -> str:
    """Return the name of the executor that `execution.target` stands for."""
    target = settings.get_option(TARGET)
    return _ALIASES.get(target, target)


def runs_elsewhere(settings: Settings) -> bool:
    """Return whether jobs run on a cluster in another process, so that neither Java nor Spark is needed in this one."""
    return executor_name(settings) in _ELSEWHERE


def known_parallelism(settings: Settings) -> int | None:
    """Return the default parallelism of the executor that would run a job now, without starting it, or None.

    An executor that was not used yet is made only for this call, because the first job's settings make the one that is
    kept.
    """
    executor = _registry.active or _made_for(settings)
    try:
        return (executor or create_executor(settings)).known_parallelism()
    except HostError:
        # What is wrong with the host is said when a job is to run on it.
        return None


def executor_for(settings: Settings) -> PipelineExecutor:
    """Return the active executor, or the one of this process that `settings` name, made on first use.

    Executors made here are shared by all environments, because two of them would compete for one Spark's cores, and
    closed when the process ends: handles of jobs use them until then.
    """
    if _registry.active is not None:
        return _registry.active
    with _registry.lock:
        executor = _made_for(settings)
        if executor is None:
            executor = create_executor(settings)
            _registry.made.setdefault(executor_name(settings), []).append(executor)
            atexit.register(executor.close)
        return executor


def _made_for(settings: Settings) -> PipelineExecutor | None:
    """Return the executor of this process for these settings, the newest first; None if there is none yet."""
    for executor in reversed(_registry.made.get(executor_name(settings), [])):
        if not isinstance(executor, SelectiveExecutor) or executor.serves(settings):
            return executor
    return None


def settings_for_cluster(job: Mapping[str, str]) -> dict[str, str]:
    """Return the job's settings without those of a preview, because later jobs of the cluster would inherit them."""
    is_preview = Settings(job).get_option(IS_PREVIEW)
    own = PREVIEW_SETTINGS.keys() if is_preview else ()
    return {key: value for key, value in job.items() if key not in own}
