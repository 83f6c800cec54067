"""`headrace state`: shows operators of a job or snapshot, their states with sizes, and the content of a state."""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

import click
from click.shell_completion import CompletionItem

from headrace.cli.jobs.cluster_command import (
    JOB_ID,
    ClusterCommand,
    ClusterSession,
    JobIdType,
    completing_client,
    one_named,
    with_job_id,
)
from headrace.cli.jobs.state_tables import (
    operator_lines,
    parts_lines,
    row_lines,
    states_lines,
    title_of,
)
from headrace.core.errors import HeadraceError
from headrace.core.ids import ID_PATTERN
from headrace.rest.client import path_of

_LATEST: Final = "latest"
_SNAPSHOT: Final = re.compile("[0-9]{1,18}")
_ROWS_MAX: Final = 1_000
_WORDS_MAX: Final = 3
_HELP: Final = """\
Show the state of a job: its operators, the sizes of an operator's states, or the largest parts and rows of one state.

An operator is named by its uid, id, number, or a part of its name, a state by its name or number. Without JOB_ID,
shows the only running job. The running tasks answer between two batches; --snapshot reads the files of a snapshot
instead, also of a job that has ended.

\b
Try it:
  headrace state                                    operators, and snapshots that can be read
  headrace state enrich                             sizes and skew of its states
  headrace state enrich customer                    its largest keys and first rows
  headrace state enrich customer --key anna --key 7
  headrace state --snapshot latest 4f1c2d0a9b8e7c6d5f4e3d2c1b0a9f8e
  headrace state --json enrich customer --limit 1000 | jq '.rows.rows[].values'
"""


class _WordType(JobIdType):
    """The first word is a job id or an operator; the shell completes what comes next: a job, an operator, a state."""

    name = "word"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        return value

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        words: Sequence[str] = ctx.params.get(param.name or "") or ()
        if not words:
            return super().shell_complete(ctx, param, incomplete)
        if not re.fullmatch(ID_PATTERN, words[0]):
            return []
        try:
            client = completing_client(ctx)
            query = _snapshot_query(ctx.params.get("snapshot"))
            state = path_of("jobs", words[0], "state")
            operators = client.get_object(state, **query)["operators"]
            if len(words) == 1:
                found = [(title_of(one), one["name"]) for one in operators]
            else:
                operator = operators[_operator_at(words[1], operators)]
                path = state + path_of("operators", operator["id"])
                states = client.get_object(path, **query)["states"]
                found = [(one["name"], one["table"]) for one in states]
            return [
                CompletionItem(name, help=meaning)
                for name, meaning in found
                if name.startswith(incomplete)
            ]
        except (HeadraceError, click.UsageError, OSError, LookupError, TypeError):
            return []  # completion must not print errors into the shell's command line


@click.command(cls=ClusterCommand, help=_HELP)
@click.option(
    "--snapshot",
    metavar="ID",
    help="Read this checkpoint or savepoint of the job; 'latest': the newest that can be read.",
)
@click.option(
    "--key",
    "keys",
    metavar="KEY",
    multiple=True,
    help="Show only rows of this key, as JSON or a word; may be repeated.",
)
@click.option("--subtask", type=click.IntRange(min=0), help="Show only rows of this subtask.")
@click.option(
    "--limit",
    type=click.IntRange(min=1, max=_ROWS_MAX),
    default=20,
    show_default=True,
    help="Maximum number of rows.",
)
@click.option("--expired", is_flag=True, help="Also show rows past their time to live.")
@click.argument("words", type=_WordType(), metavar="[JOB_ID] [OPERATOR [STATE]]", nargs=-1)
@click.pass_obj
def state(
    session: ClusterSession,
    snapshot: str | None,
    keys: tuple[str, ...],
    subtask: int | None,
    limit: int,
    expired: bool,
    words: tuple[str, ...],
) -> int:
    """Show state; the help text is `_HELP`."""
    named = list(words)
    is_named = bool(named) and re.fullmatch(ID_PATTERN, named[0]) is not None
    job_id = session.job_named(JOB_ID.convert(named.pop(0), None, None) if is_named else None)
    if len(named) >= _WORDS_MAX:
        raise click.UsageError(f"'{named[2]}' is one word too many: give an operator and a state")
    if len(named) < 2 and (keys or subtask is not None or expired):
        raise click.UsageError("--key, --subtask and --expired need the name of a state")
    reading = _StateReading(session, job_id, snapshot)
    if not named:
        session.answer(with_job_id(reading.info))
        lines = operator_lines(reading.info)
    elif len(named) == 1:
        found = reading.operator_state(named[0])
        session.answer(found)
        lines = states_lines(found)
    else:
        found = reading.operator_state(named[0])
        one = _state_of(found, named[1])
        query = {
            "keys": json.dumps([_key_in_text(key) for key in keys]) if keys else None,
            "subtask": subtask,
            "limit": limit,
            "expired": "true" if expired else None,
        }
        rows = reading.rows(found, one, query)
        session.answer({"figures": one, "rows": rows})
        lines = [*parts_lines(found, one), "", *row_lines(rows)]
    if not session.is_json:
        session.say("\n".join(lines))
    return 0


class _StateReading:
    """Reads the state of one job, now or in a snapshot."""

    def __init__(self, session: ClusterSession, job_id: str, snapshot: str | None) -> None:
        self._client = session.client
        self._path = path_of("jobs", job_id, "state")
        if snapshot == _LATEST:
            known = self._client.get_object(self._path)["snapshots"]
            readable = [one for one in known if one["problem"] is None]
            if not readable:
                raise click.UsageError(
                    f"job {job_id} has no snapshot that can be read; 'headrace state {job_id}' says why"
                )
            snapshot = str(max(one["id"] for one in readable))
        self._query = _snapshot_query(snapshot)
        self.info = self._client.get_object(self._path, **self._query)

    def operator_state(self, named: str) -> dict[str, Any]:
        """Return the states of an operator with their sizes."""
        operators = self.info["operators"]
        if not operators and self.info["problem"]:
            raise click.UsageError(
                f"{self.info['problem']}: read one of its snapshots, with --snapshot latest"
            )
        operator = operators[_operator_at(named, operators)]
        return self._client.get_object(self._path_of(operator), **self._query)

    def rows(
        self, operator: Mapping[str, Any], one: Mapping[str, Any], query: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Return rows of one state."""
        asked = {name: value for name, value in query.items() if value is not None}
        path = f"{self._path_of(operator)}/rows"
        return self._client.get_object(
            path, table=one["table"], state=one["name"], **asked, **self._query
        )

    def _path_of(self, operator: Mapping[str, Any]) -> str:
        return self._path + path_of("operators", operator["id"])


def _snapshot_query(snapshot: str | None) -> dict[str, int]:
    if snapshot is None:
        return {}
    if not _SNAPSHOT.fullmatch(snapshot):
        raise click.UsageError(
            f"--snapshot takes the id of a snapshot, a whole number, or '{_LATEST}': '{snapshot}' is neither"
        )
    return {"snapshot": int(snapshot)}


def _operator_at(named: str, operators: Sequence[Mapping[str, Any]]) -> int:
    """Return the index of the operator that is meant. UsageError lists all."""
    by_id = [at for at, one in enumerate(operators) if one["id"] == named]
    if by_id:
        return by_id[0]
    entries = [(title_of(one), str(one["name"])) for one in operators]
    return one_named(named, entries, "operator", "operators")


def _state_of(found: Mapping[str, Any], named: str) -> dict[str, Any]:
    states: list[dict[str, Any]] = found["states"]
    entries = [(f"{one['table']}/{one['name']}", str(one["name"])) for one in states]
    return states[one_named(named, entries, "state", "states")]


def _key_in_text(text: str) -> Any:
    """Parse a key from the command line: JSON, or a string if it is not JSON."""
    try:
        return json.loads(text)
    except ValueError:
        return text
