"""ClusterCommand: a command that asks a cluster; and ClusterSession, which its function receives.

Every such command has Flink's general options (-m, -D, -t, -z, -v), and `--json` for one JSON document on standard
output and messages on standard error.
"""

import functools
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final
from urllib.parse import urlsplit

import click
from click.shell_completion import CompletionItem

from headrace.cli.general_options import (
    KeyValue,
    json_option,
    namespace_option,
    namespace_settings,
    print_json,
    refuse_unusable,
)
from headrace.cli.logs import configure_logs, report_failure
from headrace.cluster.high_availability.options import is_highly_available
from headrace.core.config import Settings, check_values, unknown_settings
from headrace.core.error_text import describe, on_one_line, without_controls
from headrace.core.errors import ConfigurationError, HeadraceError
from headrace.core.ids import ID_PATTERN, ID_TEXT_FORM
from headrace.core.security.tls import is_loopback
from headrace.graph.pipeline_options import FREE_PREFIXES
from headrace.rest.client import (
    CLIENT_TIMEOUT,
    CONNECTION_TIMEOUT,
    RETRY_MAX_ATTEMPTS,
    RestClient,
    path_of,
)
from headrace.rest.client_errors import (
    OperationFailedError,
    OperationLateError,
    RestError,
    RestRefusedError,
    RestUnreachableError,
)
from headrace.rest.home.connections import (
    FoundConnection,
    address_of,
    find_connection,
    find_named,
    live_addresses,
    live_connections,
)

_TARGETS: Final = ("remote",)
_RULE: Final = "-" * 60
_SAVEPOINT_PATH: Final = re.compile(rf"/jobs/({ID_PATTERN})/savepoints/{ID_PATTERN}")
_NOTE_INTERVAL_S: Final = 10.0
_COMPLETION: Final = {
    RETRY_MAX_ATTEMPTS.key: "1",
    CONNECTION_TIMEOUT.key: "300 ms",
    CLIENT_TIMEOUT.key: "1 s",
}
"""Short time-outs for completing a command line."""


class ClusterSession:
    """The cluster that a command asks, and the command's ways to print."""

    def __init__(
        self, address: str | None, definitions: Mapping[str, str], *, is_json: bool
    ) -> None:
        self.address = address
        self.definitions = dict(definitions)
        self.is_json = is_json
        self._has_said_retry = False

    @functools.cached_property
    def found(self) -> FoundConnection:
        """Connection of the cluster. Raises NoClusterError, SeveralClustersError or ConnectionFileError."""
        settings = Settings(self.definitions)
        if self.address is None and is_highly_available(settings):
            return _leader_of(settings, self.note)
        return find_connection(self.address, self.note)

    @functools.cached_property
    def client(self) -> RestClient:
        """Client of the cluster; the first use looks for the cluster."""
        return self.client_for(None)

    def client_for(self, patience_s: float | None) -> RestClient:
        """Return a client whose calls end within this time; None: within the time of the settings."""
        settings = dict(self.definitions)
        host = urlsplit(self.found.connection.address).hostname or ""
        if self.found.file is None and is_loopback(host):
            # A cluster of this machine that is about to listen has already written its file.
            settings.setdefault(RETRY_MAX_ATTEMPTS.key, "1")
        return RestClient.of(
            self.found,
            settings=Settings(settings),
            on_retry=self._say_retry,
            patience_s=patience_s,
        )

    def find_cluster(self) -> None:
        """Find the cluster now, so that its errors come before the first line of output."""
        _ = self.client

    @functools.cached_property
    def impatient_client(self) -> RestClient:
        """Return a client for views that repeat their requests by themselves."""
        settings = {**self.definitions, RETRY_MAX_ATTEMPTS.key: "1"}
        return RestClient.of(self.found, settings=Settings(settings))

    def _say_retry(self, error: RestUnreachableError | RestRefusedError) -> None:
        if not self._has_said_retry:
            self._has_said_retry = True
            self.note(f"waiting for the cluster: {error} (Ctrl-C ends)")

    def say(self, text: str) -> None:
        """Print a line for people: on standard error if standard output is for a program."""
        click.echo(without_controls(text), err=self.is_json)

    def note(self, text: str) -> None:
        """Print a line on standard error."""
        click.echo(without_controls(text), err=True)

    def answer(self, document: Any) -> None:
        """Print the JSON document, if it is wanted."""
        if self.is_json:
            print_json(document)

    def operate(
        self, path: str, body: Mapping[str, Any], results: str | None = None
    ) -> dict[str, Any]:
        """Start an operation and return its result; while it runs, print from time to time that it goes on."""
        request_id = self.client.begin(path, body)
        noted_s = 0.0

        def tell(waited_s: float) -> None:
            nonlocal noted_s
            if waited_s - noted_s >= _NOTE_INTERVAL_S:
                noted_s = waited_s
                self.note(f"still waiting after {waited_s:.0f} s")

        results_path = f"{results or path}/{request_id}"
        try:
            return self.client.result_of(results_path, request_id, tell)
        except (KeyboardInterrupt, OperationLateError) as error:
            found = _SAVEPOINT_PATH.fullmatch(results_path)
            if found is not None:
                self.note(f"to see its result: headrace savepoint --result {request_id} {found[1]}")
            elif isinstance(error, KeyboardInterrupt):
                self.note(f"the cluster continues it: ask {results_path} for the result")
            raise

    def job_named(self, job_id: str | None) -> str:
        """Return the job that is meant: the named one, or the only running one. UsageError."""
        if job_id is not None:
            return job_id
        jobs = self.client.get_object("/jobs/overview").get("jobs", [])
        running = [job for job in jobs if not is_ended(job["state"])]
        if len(running) == 1:
            return str(running[0]["jid"])
        listed = "".join(
            f"\n  {job['jid']}  {on_one_line(job['name'])} ({job['state']})"
            for job in running or jobs
        )
        if running:
            raise click.UsageError(f"{len(running)} jobs are running: name one of them{listed}")
        hint = f": name one that has ended{listed}" if jobs else ", and none has run"
        raise click.UsageError(f"no job is running{hint}")

    def vertex_named(self, job_id: str, named: str) -> dict[str, Any]:
        """Return the vertex with this id, number (from 1) or part of its name. UsageError lists the vertices."""
        vertices: list[dict[str, Any]] = self.client.get_object(path_of("jobs", job_id)).get(
            "vertices", []
        )
        entries = [(str(one["id"]), str(one["name"])) for one in vertices]
        return vertices[one_named(named, entries, "vertex", "vertices")]

    def task_manager_named(self, named: str) -> str:
        """Return the id of the TaskManager with this id, number (from 1) or part of its id. UsageError lists all."""
        managers: list[dict[str, Any]] = self.client.get_object("/taskmanagers").get(
            "taskmanagers", []
        )
        ids = [str(one["id"]) for one in managers]
        return ids[one_named(named, [(one, one) for one in ids], "TaskManager", "TaskManagers")]


def one_named(named: str, entries: Sequence[tuple[str, str]], noun: str, nouns: str) -> int:
    """Return the index of the entry (id and name) that is meant. UsageError lists all entries.

    The id or the whole name has priority over the number (from 1), and the number over a part of the name.
    """
    places = range(len(entries))
    similar = [at for at in places if named.lower() in entries[at][1].lower()]
    exact = [at for at in places if named in entries[at]]
    numbered = [at for at in places if named == str(at + 1)]
    for found in (exact, numbered, similar):
        if len(found) == 1:
            return found[0]
    what = f"several {nouns} have" if similar else f"no {noun} has"
    where = "id" if all(id_ == name for id_, name in entries) else "name"
    listed = "".join(
        f"\n  {number}  {id_ if id_ == name else f'{id_}  {on_one_line(name)}'}"
        for number, (id_, name) in enumerate(entries, 1)
    )
    raise click.UsageError(f"{what} '{named}' in the {where}; there are{listed or ' none'}")


def with_job_id(answer: Mapping[str, Any]) -> dict[str, Any]:
    """Return an answer of the REST API with the job's id under the key that all JSON documents of commands use."""
    return {"job-id" if key == "jid" else key: value for key, value in answer.items()}


ENDED: Final = frozenset({"FINISHED", "CANCELED", "FAILED"})
"""JobStatus of jobs that are over; a suspended one may continue elsewhere."""


def is_ended(state: str) -> bool:
    """Return whether a job in this state is over."""
    return state in ENDED


class JobIdType(click.ParamType[str]):
    """A job id: 32 hexadecimal digits. The shell completes those of the cluster's jobs."""

    name = "job id"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        if not re.fullmatch(ID_PATTERN, value):
            self.fail(
                f"'{value}' is not a job id, which has {ID_TEXT_FORM}; 'headrace list' shows them",
                param,
                ctx,
            )
        return value.lower()

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        try:
            jobs = completing_client(ctx).get_object("/jobs/overview")["jobs"]
            return [
                CompletionItem(job["jid"], help=f"{job['name']} ({job['state']})")
                for job in jobs
                if job["jid"].startswith(incomplete)
            ]
        except (HeadraceError, OSError, LookupError, TypeError):
            return []  # completion must not print errors into the shell's command line


def completing_client(ctx: click.Context) -> RestClient:
    """Return the client of the cluster that the command line names so far; it does not wait.

    NoClusterError and its subclasses.
    """
    found = find_connection(ctx.params.get("address"), lambda _: None)
    return RestClient.of(found, settings=Settings(_COMPLETION))


class _AddressType(click.ParamType[str]):
    name = "host:port"

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        return [CompletionItem(one) for one in live_addresses() if one.startswith(incomplete)]


JOB_ID: Final = JobIdType()


class ClusterCommand(click.Command):
    """A command whose function takes a ClusterSession as its first argument, by `click.pass_obj`."""

    def __init__(
        self, *arguments: Any, params: list[click.Parameter] | None = None, **options: Any
    ) -> None:
        super().__init__(*arguments, params=[*(params or []), *_general_options()], **options)
        namespace_option(self)
        json_option(self)

    def invoke(self, ctx: click.Context) -> Any:
        address, definitions = ctx.params.pop("address"), dict(ctx.params.pop("definitions"))
        namespace = ctx.params.pop("namespace")
        ctx.params.pop("target")
        configure_logs(verbose=ctx.params.pop("verbose"))
        session = ClusterSession(address, definitions, is_json=ctx.params.pop("is_json"))
        ctx.obj = session
        try:
            session.definitions |= namespace_settings(namespace, definitions)
            _check(definitions)
            if session.address is None:
                session.address = address_of(Settings(definitions))
            return super().invoke(ctx)
        except click.UsageError as error:
            error.ctx = error.ctx or ctx
            raise
        except (RestError, ConfigurationError) as error:
            if session.is_json:
                print_json({"errors": [describe(error, wants_details=False)[0]]})
            code = report_failure(error)
            _print_stack(error)
            return code


def _general_options() -> Sequence[click.Parameter]:
    return (
        click.Option(
            ["-m", "--jobmanager", "address"],
            type=_AddressType(),
            metavar="HOST:PORT",
            help="Address of the cluster (default: the only one of this machine).",
        ),
        click.Option(
            ["-D", "definitions"],
            type=KeyValue(),
            multiple=True,
            help="A setting, such as client.timeout='10 min'; may be repeated.",
        ),
        click.Option(
            ["-t", "--target"],
            type=click.Choice(_TARGETS),
            help="Accepted for Flink's scripts and ignored: clusters are reached over REST.",
        ),
        click.Option(["-v", "--verbose"], is_flag=True, help="Log each request on standard error."),
    )


def _leader_of(settings: Settings, note: Callable[[str], None]) -> FoundConnection:
    """Return the connection of the driver that leads now. Raises RestUnreachableError."""
    from headrace.client.leader_rest_client import leader_connection
    from headrace.cluster.high_availability.leader_retrieval_service import open_leader_retrieval

    retrieval = open_leader_retrieval(settings)
    try:
        found = leader_connection(retrieval, note)
    finally:
        retrieval.close()
    if found is None:
        raise RestUnreachableError("the leader's address", "no driver of the cluster leads now")
    return found


def _check(definitions: Mapping[str, str]) -> None:
    if unknown_settings(definitions, FREE_PREFIXES):
        # A key of some other part, or a typo: to find out takes a second, as every part is imported.
        refuse_unusable(definitions)
    else:
        check_values(definitions)


def _print_stack(error: HeadraceError) -> None:
    """Print the server's whole error text, as Flink does, if it is longer than the line that was printed."""
    match error:
        case RestRefusedError(errors=strings):
            text = "\n".join(strings)
        case OperationFailedError(cause=text):
            pass
        case _:
            return
    if len(text.splitlines()) > 1:
        click.echo(
            f"\n{_RULE}\n The program finished with the following exception:\n{_RULE}", err=True
        )
        click.echo(without_controls(text), err=True)


class ClusterNameType(click.ParamType[str]):
    """A cluster's name. The shell completes those of running clusters."""

    name = "name"

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        try:
            found, _ = live_connections(lambda _: None)
        except (HeadraceError, OSError):
            return []  # completion must not print errors into the shell's command line
        names = [one.connection for one in found if one.connection.name.startswith(incomplete)]
        return [CompletionItem(one.name, help=one.address) for one in names]


CLUSTER_NAME = ClusterNameType()


def choose_cluster(session: ClusterSession, name: str | None) -> None:
    """Choose the cluster of this name; without a name, the one of -m or the only one.

    UsageError if both are given; NoSuchClusterError; SeveralClustersError.
    """
    if name is None:
        return
    if session.address is not None:
        raise click.UsageError("give either the name of a cluster or -m, not both")
    session.found = find_named(name, session.note)
