"""StageRun: runs the stages of one BATCH job once, on a Spark thread; other threads may end it."""

import contextlib
import logging
import threading
from collections.abc import Callable
from typing import Final

from pyspark import InheritableThread

from headrace.core.config import Settings
from headrace.core.ids import BlobKey
from headrace.graph.job_graph import JobGraph, with_payloads, without_content
from headrace.graph.pipeline_options import PYTHON_FILES
from headrace.spark.batch.batch_commits import CommitTurn
from headrace.spark.batch.batch_host import BatchHost
from headrace.spark.batch.batch_job import BatchJob, job_group_of
from headrace.spark.batch.stage_files import StageFiles, modules_digest
from headrace.spark.batch.subtask_reports import ReportChannel, TakeReport
from headrace.spark.job_descriptions import batch_description
from headrace.spark.session.authentication import handed_to_tasks
from headrace.task.batch.stage_rows import StageReport

_LOG: Final = logging.getLogger(__name__)
_CANCEL_S: Final = 10.0
_CANCELS_MAX: Final = 20


class StageRun:
    """Run of one job's stages. Its callbacks come on the run's thread; `take_report` also on others.

    `on_finished` gets the rows of collect sinks, `on_stopped` the error that ended the stages. `report_address`: of the
    ReportReceiver, empty if workers write to a pipe. `is_of_program`: see BatchJobMaster.
    """

    def __init__(
        self,
        graph: JobGraph,
        host: BatchHost,
        settings: Settings,
        turn: CommitTurn,
        *,
        is_of_program: bool,
        report_address: str,
        take_report: TakeReport,
        on_finished: Callable[[list[StageReport]], None],
        on_stopped: Callable[[BaseException], None],
    ) -> None:
        self._graph: Final = graph
        self._host: Final = host
        self._settings: Final = settings
        self._turn: Final = turn
        self._is_of_program: Final = is_of_program
        self._report_address: Final = report_address
        self._take_report: Final = take_report
        self._on_finished: Final = on_finished
        self._on_stopped: Final = on_stopped
        # Set once the thread needs Spark no more.
        self._has_left_spark: Final = threading.Event()
        # A thread of Spark's has a thread of the JVM to itself, which the job's group belongs to.
        self._thread: Final = InheritableThread(
            target=self._run, name=f"headrace-batch-{graph.job_id}", daemon=True
        )

    def start(self) -> None:
        """Begin to run the stages."""
        self._thread.start()

    def end(self) -> None:
        """End the stages if they still run; the request is repeated, as more may begin. Not on the run's thread."""
        for _ in range(_CANCELS_MAX):
            if self._has_left_spark.is_set():
                return
            try:
                self._host.spark.sparkContext.cancelJobGroup(job_group_of(self._graph.job_id))
            except Exception as error:
                # Where the application has ended meanwhile, so have its stages.
                _LOG.warning(
                    "the stages of job %s could not be cancelled in Spark: %s",
                    self._graph.job_id,
                    error,
                )
                return
            self._has_left_spark.wait(_CANCEL_S / _CANCELS_MAX)

    def end_and_wait(self) -> None:
        """End the stages, and wait a while for their thread to end. Not on the run's thread."""
        self.end()
        self._thread.join(_CANCEL_S)

    def _run(self) -> None:
        try:
            reports = self._run_stages()
        except BaseException as error:  # whatever it is, the client waits for an end
            self._has_left_spark.set()
            self._on_stopped(error)
        else:
            self._has_left_spark.set()
            self._on_finished(reports)

    def _run_stages(self) -> list[StageReport]:
        """Run all stages, and return the rows of collect sinks."""
        group = job_group_of(self._graph.job_id)
        host, context = self._host, self._host.spark.sparkContext
        described = batch_description(self._graph, host.dashboard())
        context.setJobGroup(group, described, interruptOnCancel=True)
        pipe = f"{host.pipe_folder}/reports-{group}" if host.pipe_folder else ""
        channel = ReportChannel(
            context, self._graph.job_id, self._take_report, pipe, self._report_address
        )
        files: StageFiles | None = None
        try:
            graph = with_payloads(self._graph, lambda key: host.blob(self._graph.job_id, key))
            if graph.artifacts:
                files = self._sent_files()
            job = BatchJob(
                host.spark,
                graph,
                host.output_pipe,
                host.resources,
                channel.sender,
                files,
                self._workers,
                self._settings,
                self._turn,
            )
            with contextlib.ExitStack() as handed:
                if host.secrets is not None:
                    handed.enter_context(handed_to_tasks(context, host.secrets))
                return list(job.run())
        finally:
            channel.close()
            if files is not None:
                unused = host.entries_in_use.release(files.entry_names)
                files.forget(unused if host.pipe_folder else ())

    @property
    def _workers(self) -> str:
        """Return the name of the Python workers for the job's imported files; empty if it imports none."""
        graph = self._graph
        if not self._is_of_program and graph.settings.get(PYTHON_FILES.key):
            # Paths, whose content may be another one by the next job.
            return graph.job_id.hex()
        return modules_digest(tuple(map(without_content, graph.artifacts)))

    def _sent_files(self) -> StageFiles:
        """Send the files that travel with the job to the executors."""
        job_id, host = self._graph.job_id, self._host
        contents: dict[BlobKey, bytes] = {}
        for artifact in self._graph.artifacts:
            key = without_content(artifact).key
            if key is not None and key not in contents:
                contents[key] = artifact.content if artifact.key is None else host.blob(job_id, key)
        artifacts = tuple(map(without_content, self._graph.artifacts))
        context, parent = host.spark.sparkContext, host.artifact_parent
        files = StageFiles.sent(context, artifacts, contents, parent)
        host.entries_in_use.hold(files.entry_names)
        return files
