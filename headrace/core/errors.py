"""Errors that Headrace raises on purpose: each has a cause, a place and a remedy, and keeps its facts as fields.

In the tree below, the name before a colon is the module that defines the errors after it; modules called `errors` draw
their own subtrees. Exceptions of user functions become UserCodeErrors here, with the user's file and line.

HeadraceError                    domain: who can fix it; recoverable: whether a restart may help;
|                                is_consequence: something else failed before; repeats: another restart does
|                                not help once the error has repeated
+- ProgramError                  the user's program is wrong; raised while the graph is built
|  +- FunctionNotPicklableError
|  +- NotInstalledError
|  +- cli.daemon.daemon_cluster_descriptor: EndedWithoutJobError
|  +- client.remote_executor: RemoteDataFrameError
|  +- graph.operator_ids: DuplicateUidError
|  +- spark.application: UnrecoverableJobError
|  +- spark.dataframes.dataframe_coordinator: DataFrameChangedError
|  +- spark.dataframes.streaming_dataframe_coordinator: QueryAheadError
|  +- spark.session.python_files: LateFilesError
+- ConfigurationError            an option has an invalid value
+- core.key_hash: InvalidKeyError  a key is null, NaN or not hashable
+- RecordTypeError               a record does not fit its declared type
+- UserCodeError                 an exception left a user function; carries the user's file and line
|  +- FinalUserCodeError
+- JobExecutionError             raised by `execute`: the job FAILED, with its first cause
|  +- CachedStreamLostError      a cached stream that the job reads cannot be read any more
+- ClusterDatasetCorruptedError  the same error inside the cluster
+- JobCancelledError             the job was cancelled while its result was awaited
|  +- api.client.program_end: JobLeftBehindError  the program ended before it
+- NoResourceAvailableError      no slot within the timeout
+- connectors.dataframe.batch_log: BatchLogError  a log of batches cannot be read in the requested way
+- RemoteError                   an error of another process, of a class that is unknown in this one
+- HostError                     Spark cannot host Headrace, or something that it needs is missing
|  +- PortInUseError
|  +- VersionMismatchError
|  +- checkpoint.storage.conditional_writes: S3ClientMissingError
|  +- cluster.cluster: ClusterFailedError
|  +- cluster.high_availability.leader_election_service: LeadershipLostError
|  +- cluster.high_availability.kubernetes.kubernetes_client: KubernetesMissingError
|  +- cluster.high_availability.zookeeper.zookeeper_client: ZooKeeperMissingError
|  +- connectors.kafka.clients: KafkaClientMissingError
|  +- connectors.postgres.options: PostgresClientMissingError
|  +- shuffle_service.errors: DirectoryInUseError
|  +- spark.session.authentication: UnknownSparkSecretError
|  +- spark.session.checklist: ChecklistError
|  +- spark.dataframes.sink_coordinator: SinkCommitError
|  +- spark.dataframes.dataframe_coordinator: DataFramePushError
|  +- spark.dataframes.streaming_dataframe_coordinator: QueryStoppedError
|  +- checkpoint.storage.conditional_writes: S3ClientMissingError
|  +- spark.application: DriverLeftError
|  +- spark.executor: ExternalResourcesError, NotEnoughSlotsError
|  +- spark.host: NoExecutorError, SessionStoppedError
|  +- spark.session.class_archive: ClassArchiveError
|  +- spark.session.java_runtime: JavaNotFoundError
|  +- spark.master: MasterUnreachableError, UnknownMasterError
|  +- spark.session.program_sessions: UnobeyedSettingError
|  +- spark.workers.resource_driver: SparkHostLostError
|  +- spark.session.session: SparkStartError
|  +- spark.session.spark_errors: UnusableInterpreterError, UnusableWorkerError, WorkerRefusedError
|  +- spark.session.spark_errors: UnusableEnvironmentError
|  |  +- spark.session.spark_errors: EnvironmentNotMadeError
|  +- spark.session.web_page: WebPageError
+- rpc.errors: RpcError          a call between endpoints failed
+- network.errors: NetworkError  the exchange of records failed
+- checkpoint.errors: CheckpointError, StateReadError
+- state_processor.errors: StateProcessorError
+- gateways.errors: BlobError, CheckpointFailedError, ClusterShutDownError, CoordinatorBusyError
+- gateways.errors: DuplicateJobSubmissionError, NotLeadingError
+- gateways.errors: JobAlreadyEndedError, NothingCollectedError, SlotOccupiedError, StaleLeaderError
+- gateways.errors: TaskBuildError, TaskSubmissionError, UnknownAttemptError, UnknownJobError, UnknownOperatorError
+- rest.client_errors: RestError
+- rest.programs.uploaded_programs: UploadRefusedError
+- rest.history.archive_file: DamagedArchiveError
+- gateways.errors: StackSamplerBusyError, UnknownTaskManagerError
+- core.process.log_files: LogFileNotFoundError
+- core.process.process_profiler: ProfileNotFoundError, ProfilerBusyError
+- metrics.reporters.reporter: ReportingError
+- state.backend: StateAccessError
+- state.evolution: StateIncompatibleError
+- state.rocksdb.database: StateBackendMissingError
+- state.backend: StateNotStorableError
+- cluster.job_master.checkpointing.protocol.checkpoint_plan: CheckpointRefusedError
+- cluster.job_master.checkpointing.commits.sink_commits: CommitFailedError, OutputAheadError
+- cluster.job_master.coordinators.collect_coordinator: CollectBufferExceededError
+- cluster.job_master.connections.cached_results: DataSetLookupError
+- cluster.blob.virtual_environment: MissingInterpreterError, PackageConflictError
+- cluster.blob.virtual_environment: RequirementsNotInstalledError
+- cli.cluster.session: NameTakenError
+- cli.daemon.daemon_process: DaemonFailedError
+- cli.daemon.messages: StarterGoneError
+- cluster.dispatcher.slot_quota: SlotQuotaExceededError
+- cluster.shuffle_master: PartitionRegistrationError
+- cluster.task_executor.task_manager_services: JobMasterLostError, SlotReleasedError, TaskManagerEndsError
+- connectors.dataframe.directory_commit: NumberUsedTwiceError, ResultFileLostError, TargetExistsError
+- connectors.files.paths: PathOutsideError
+- connectors.files.sink.file_commit: FileCommitError
+- connectors.files.sink.staging: OutputDiskFullError
+- connectors.files.sink.note_file: NoteChangedError, NoteDamagedError, NoteLostError
+- connectors.files.formats.splits: FileChangedError
+- connectors.kafka.clients: KafkaError
+- connectors.kafka.staged_records: StagedFileChangedError
+- connectors.kafka.enumerator: NoOffsetError
+- connectors.kafka.transaction_commit: StagedRecordsLostError
+- connectors.postgres.staged_commit: StagedRowsLostError
+- spark.batch.stage_memory: StageMemoryError
+- api.client.collected_records: CollectedRecordsLostError
+- api.client.job_client: ClusterClosedError
|  +- client.rest_dispatcher: ClusterLostError
+- api.client.job_state: NoCommittedStateError
"""

import asyncio
import enum
import sysconfig
import traceback
from pathlib import Path
from types import TracebackType
from typing import ClassVar, Final

import msgspec

from headrace.core.ids import ClusterDataSetId
from headrace.core.redaction import shown_uri, shown_value
from headrace.core.resource_profile import JOB_ENVIRONMENT


class ErrorDomain(enum.Enum):
    """Party that can fix an error."""

    USER = "USER"
    EXTERNAL = "EXTERNAL"
    INTERNAL = "INTERNAL"


class HeadraceError(Exception):
    """Base of all errors that Headrace raises on purpose.

    `is_consequence`: True if the error follows from another failure; it is never reported as a job's cause while
    another error is known. `repeats`: True if the error comes from the program or from a disk, not from a lost process
    or connection, so that the next restart will end in the same way. `aftermath`: a note for a program that continues
    after the error; only notebooks show it, because other programs end.
    """

    domain: ClassVar[ErrorDomain] = ErrorDomain.INTERNAL
    recoverable: ClassVar[bool] = True
    is_consequence: ClassVar[bool] = False
    repeats: bool = False
    aftermath: str = ""

    def __str__(self) -> str:
        # URIs of object stores may hold a key: errors are printed, logged and sent on.
        return shown_uri(super().__str__())

    def _render_traceback_(self) -> list[str]:
        """Return the lines that IPython shows in a notebook; without this it shows a hundred lines of Headrace's."""
        # Imported late: it looks at the classes here.
        from headrace.core.error_text import notebook_lines

        return notebook_lines(self)


class ProgramError(HeadraceError):
    """Raised if the program cannot become a job as it is written."""

    domain, recoverable = ErrorDomain.USER, False


class FunctionNotPicklableError(ProgramError):
    """Raised if a user function cannot be shipped to the workers."""

    def __init__(self, operator_name: str, location: str, reason: str) -> None:
        super().__init__(
            f"the function of operator '{operator_name}' ({location}) cannot be pickled: {reason}; "
            "create connections, locks and files in open() instead of capturing them"
        )
        self.operator_name = operator_name
        self.location = location


class NotInstalledError(ProgramError):
    """Raised if an operator names code for the driver that is not installed there, although it may be elsewhere."""


class ConfigurationError(HeadraceError):
    """Raised if an option has an invalid value."""

    domain, recoverable = ErrorDomain.USER, False

    def __init__(self, key: str, value: object, reason: str) -> None:
        shown = shown_value(key, value) if isinstance(value, str) else value
        said = "is not set" if value is None else f"has the value {short_repr(shown)}"
        super().__init__(f"option '{key}' {said}: {reason}")
        self.key = key
        self.reason = reason


def telling_line(text: str) -> str:
    """Return the first line that is not blank."""
    return next((line.strip() for line in text.splitlines() if line.strip()), "")


def short_repr(value: object) -> str:
    """Return one line of at most 120 characters that shows `value`, even if its `repr` fails.

    A repr of several lines draws arrays or tables: the name of its class is put before it.
    """
    try:
        text = repr(value)
    except Exception as error:  # the user's own __repr__
        return f"<{type(value).__name__} whose __repr__ raised {type(error).__name__}>"
    if "\n" in text:
        text = f"{type(value).__name__} {' '.join(text.split())}"
    return text if len(text) <= 120 else text[:117] + "..."


class RecordTypeError(HeadraceError):
    """Raised if a record does not fit the declared type of its stream.

    `row_index`: index among the records that were converted together, if known.
    """

    domain, recoverable = ErrorDomain.USER, False

    def __init__(
        self, value: object, type_text: str, reason: str, row_index: int | None = None
    ) -> None:
        self.shown = short_repr(value)
        self.type_text = type_text
        self.reason = " ".join(reason.split())
        self.row_index = row_index
        super().__init__(self._message(self.shown))

    def at(self, place: str) -> "RecordTypeError":
        """Add the origin of the record to the message; return this error."""
        self.args = (self._message(f"{self.shown} ({place})"),)
        return self

    def _message(self, record: str) -> str:
        return f"record {record} does not fit its declared type {self.type_text}: {self.reason}"


class UserCodeError(HeadraceError):
    """Raised if an exception left user code.

    The first line names the cause, the operator and the user's own file and line. `cause_type` is the class name
    of the user's exception; `remote_traceback` the text of its traceback, also after RPC.
    """

    domain, recoverable = ErrorDomain.USER, True

    def __init__(
        self,
        cause_type: str,
        cause_text: str,
        operator_name: str,
        location: str,
        remote_traceback: str,
        repeats: bool = True,
    ) -> None:
        super().__init__(
            f"{cause_type}: {telling_line(cause_text)} (in operator '{operator_name}', {location})"
            + (f"\n\n{remote_traceback.rstrip()}" if remote_traceback else "")
        )
        self.cause_type = cause_type
        self.cause_text = cause_text
        self.operator_name = operator_name
        self.location = location
        self.remote_traceback = remote_traceback
        self.repeats = repeats

    def at(self, location: str) -> "UserCodeError":
        """Return the same error with another location."""
        return type(self)(
            self.cause_type,
            self.cause_text,
            self.operator_name,
            location,
            self.remote_traceback,
            self.repeats,
        )


class FinalUserCodeError(UserCodeError):
    """Raised for a user's exception whose attribute `recoverable` is False: no restart follows."""

    recoverable = False


class JobExecutionError(HeadraceError):
    """Raised if the job FAILED.

    Its first and last lines are the first cause, because many people see only one of them.
    """

    recoverable = False

    def __init__(self, job_id: str, job_name: str, cause_text: str) -> None:
        super().__init__(_stated_at_both_ends(cause_text, f"job '{job_name}' ({job_id}) FAILED"))
        self.job_id = job_id
        self.cause_text = cause_text


def _stated_at_both_ends(cause_text: str, job: str) -> str:
    first, _, rest = cause_text.rstrip().partition("\n")
    if rest and first.partition(" (in ")[0] in rest.rpartition("\n")[2]:
        # A traceback, which ends with the raised error.
        return f"{first}\n{job}\n{rest}"
    return "\n".join((first, *([rest] if rest else ()), f"{job}: {first}"))


class ClusterDatasetCorruptedError(HeadraceError):
    """Raised if a data set that an earlier job left cannot be read. Source: Flink ClusterDatasetCorruptedException."""

    domain, recoverable = ErrorDomain.EXTERNAL, False

    def __init__(self, data_set: ClusterDataSetId, reason: str) -> None:
        super().__init__(f"cached data set {data_set} cannot be read: {reason}")
        self.data_set = data_set
        self.reason = reason


class CachedStreamLostError(JobExecutionError):
    """Raised if a cached stream that the job reads has lost its data set. `execute` then runs the job again, once."""

    domain = ErrorDomain.EXTERNAL

    def __init__(
        self, job_id: str, job_name: str, cause_text: str, data_set: ClusterDataSetId
    ) -> None:
        first, newline, rest = cause_text.partition("\n")
        first += "; run the job again, which also computes the cached stream again"
        super().__init__(job_id, job_name, f"{first}{newline}{rest}")
        self.data_set = data_set


class JobCancelledError(HeadraceError):
    """Raised if the job was cancelled while its result was awaited. `failure`: its last failure before, in one line."""

    recoverable = False

    def __init__(self, job_id: str, failure: str = "") -> None:
        after = f" after it had failed: {failure}" if failure else ""
        super().__init__(f"job {job_id} was cancelled{after}")
        self.job_id = job_id


class NoResourceAvailableError(HeadraceError):
    """Raised if slots for a job did not become available within `slot.request.timeout`."""

    domain, recoverable = ErrorDomain.EXTERNAL, True

    def __init__(
        self, missing_count: int, timeout_ms: int, explanation: str, needed_by: str = ""
    ) -> None:
        """`needed_by`: the operators that need the slots, with their places in the program."""
        wanted = f" for {needed_by}" if needed_by else ""
        super().__init__(
            f"{missing_count} slot(s){wanted} did not become available within {timeout_ms} ms "
            f"(slot.request.timeout): {explanation}"
        )
        self.missing_count = missing_count


class HostError(HeadraceError):
    """Raised if the Spark application cannot host Headrace as it is configured."""

    domain, recoverable = ErrorDomain.EXTERNAL, False


class PortInUseError(HostError):
    """Raised if every allowed port is in use. `allowed` is the option's text if it names more than `port`."""

    def __init__(self, host: str, port: int, option_key: str, allowed: str = "") -> None:
        if allowed not in ("", str(port)):
            super().__init__(
                f"every port of {allowed} on {host} is in use: allow more with '{option_key}', or 0 for any free port"
            )
        else:
            super().__init__(
                f"port {port} on {host} is in use: choose another one with '{option_key}', a range such as "
                f"{port}-{min(65535, port + 100)} where several processes share a host, or 0 for any free port"
            )
        self.host = host
        self.port = port
        self.option_key = option_key
        self.allowed = allowed


class VersionMismatchError(HostError):
    """Raised if driver and worker do not run the same software. `interpreter`: the worker's, if a job has set it."""

    def __init__(
        self,
        what: str,
        driver_version: str,
        worker_version: str,
        worker: str,
        interpreter: str = "",
    ) -> None:
        by = f", which runs by the job's python.executable, '{interpreter}'" if interpreter else ""
        setting = "python.executable" if interpreter else "PYSPARK_PYTHON (or spark.pyspark.python)"
        remedy = f"set {setting} to an interpreter with the driver's versions on every host"
        if interpreter.startswith(JOB_ENVIRONMENT):
            by = ", which runs in the Python environment of the job"
            remedy = (
                "let python.requirements, or the archive with the interpreter, install the driver's version: "
                "functions are sent between the two"
            )
        super().__init__(
            f"{what} differs: {driver_version} on the driver, {worker_version} on worker {worker}{by}; {remedy}"
        )
        self.what = what


class RemoteError(HeadraceError):
    """An error of another process whose class is unknown in this one; keeps its class name and traceback text."""

    def __init__(self, class_name: str, text: str, remote_traceback: str = "") -> None:
        super().__init__(
            f"{class_name}: {text}" + (f"\n\n{remote_traceback}" if remote_traceback else "")
        )
        self.class_name = class_name
        self.remote_traceback = remote_traceback


# The package's own folder, not just its name: a checkout may be called headrace too.
_PACKAGE: Final = Path(__file__).resolve().parents[1].as_posix() + "/"
_STANDARD_LIBRARY: Final = Path(sysconfig.get_path("stdlib")).as_posix() + "/"


def is_user_file(filename: str) -> bool:
    """Return whether a frame's file is the user's own: not Headrace's, Python's, or an installed package's."""
    name = filename.replace("\\", "/")
    if name.startswith((_PACKAGE, _STANDARD_LIBRARY, "<frozen")) or "site-packages" in name:
        return False
    # Compiled modules name their sources, which are not installed.
    return not name.endswith((".pxi", ".pyx"))


UNKNOWN_LOCATION: Final = "unknown location"
"""Location of an error that passed through no file of the user."""


def user_location(error_traceback: TracebackType | None) -> str:
    """Return `file, line n` of the innermost frame in a file of the user's, or UNKNOWN_LOCATION."""
    found = UNKNOWN_LOCATION
    for frame in traceback.extract_tb(error_traceback):
        if is_user_file(frame.filename):
            found = f"{frame.filename}, line {frame.lineno}"
    return found


USER_EXCEPTIONS: Final = (
    Exception,
    SystemExit,
    KeyboardInterrupt,
    GeneratorExit,
    asyncio.CancelledError,
)
"""Exceptions that user code may raise. `sys.exit()` in user code ends the job, not the process that runs it."""


def wrap_user_error(
    error: BaseException, operator_name: str, location: str = "", *, with_traceback: bool = True
) -> UserCodeError:
    """Return `error` as a UserCodeError of `operator_name`; a UserCodeError is returned unchanged.

    Its attribute `recoverable`, if any, is obeyed: False ends the job, True means a temporary outage. `location` is
    used if no file of the user is on the traceback.
    """
    if isinstance(error, UserCodeError):
        return error
    kind = FinalUserCodeError if _recoverable(error) is False else UserCodeError
    raised_at = user_location(error.__traceback__)
    return kind(
        type(error).__name__,
        _cause_text(error),
        operator_name,
        location if location and raised_at == UNKNOWN_LOCATION else raised_at,
        "".join(_traceback_lines(error)) if with_traceback else "",
        not is_outage(error),
    )


def is_outage(error: BaseException) -> bool:
    """Return whether waiting may help: a service does not answer, or the error has `recoverable = True`."""
    if isinstance(error, HeadraceError):
        return not error.repeats and error.domain is ErrorDomain.EXTERNAL
    return isinstance(error, (ConnectionError, TimeoutError)) or _recoverable(error) is True


def _recoverable(error: BaseException) -> object:
    try:
        return getattr(error, "recoverable", None)
    except USER_EXCEPTIONS:  # a property of the user's own
        return None


def _traceback_lines(error: BaseException) -> list[str]:
    try:
        return traceback.format_exception(error)
    except (
        USER_EXCEPTIONS
    ):  # the user's own __str__ or __repr__, of what Python does not guard itself against
        return [*traceback.format_tb(error.__traceback__), type(error).__name__]


def _cause_text(error: BaseException) -> str:
    if isinstance(error, SystemExit):
        return f"sys.exit({'' if error.code is None else repr(error.code)}) was called"
    try:
        return str(error).strip() or "without a message"
    except USER_EXCEPTIONS as failure:  # the user's own __str__
        return f"its __str__ raised {type(failure).__name__}"


DECODE_ERRORS: Final = (msgspec.MsgspecError, ValueError, RecursionError)
"""Exceptions that decoders raise for damaged bytes.

ValueError: text that is not UTF-8, or too many digits. RecursionError: values that are nested too deeply.
"""
