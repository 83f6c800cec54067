"""`headrace exceptions`: shows why a job failed or restarted, with the line of the user's program first."""

import re
from datetime import datetime
from typing import Any, Final

import click

from headrace.cli.jobs.cluster_command import JOB_ID, ClusterCommand, ClusterSession
from headrace.core.errors import is_user_file
from headrace.rest.client import path_of

_FRAME: Final = re.compile(r'File "([^"]+)", line (\d+)(?:, in (\S+))?')
_PLACE: Final = re.compile(
    r"\(in operator '(?P<operator>.*?)', (?P<file>[^()]+), line (?P<line>\d+)\)"
)
_HELP: Final = """\
Show why a job failed or restarted, the newest first: the file and line of the program, the error, and the task.

Without JOB_ID, shows those of the only running job.

\b
Try it:
  headrace exceptions 4f1c2d0a9b8e7c6d5f4e3d2c1b0a9f8e
  headrace exceptions -n 1 --traceback 4f1c2d0a9b8e7c6d5f4e3d2c1b0a9f8e     the last one, in full
  headrace exceptions --json 4f1c2d0a9b8e7c6d5f4e3d2c1b0a9f8e | jq -r '.exceptions[0].place'
"""

_Entry = dict[str, Any]


@click.command(cls=ClusterCommand, help=_HELP)
@click.option(
    "-n",
    "--count",
    type=click.IntRange(min=1),
    default=16,
    show_default=True,
    help="Maximum number of exceptions to show.",
)
@click.option("--traceback", "has_traceback", is_flag=True, help="Show whole tracebacks.")
@click.argument("job_id", type=JOB_ID, metavar="[JOB_ID]", required=False)
@click.pass_obj
def exceptions(session: ClusterSession, count: int, has_traceback: bool, job_id: str | None) -> int:
    """Show exceptions; the help text is `_HELP`."""
    job_id = session.job_named(job_id)
    answer = session.client.get_object(path_of("jobs", job_id, "exceptions"), maxExceptions=count)
    history = answer.get("exceptionHistory", {})
    entries: list[_Entry] = history.get("entries", [])[:count]
    session.answer(
        {
            "job-id": job_id,
            "exceptions": [
                {"place": place_of(one.get("stacktrace", "")), **one} for one in entries
            ],
            "truncated": bool(history.get("truncated")),
        }
    )
    if session.is_json:
        return 0
    if not entries:
        session.say("No exceptions.")
        return 0
    session.say("\n\n".join("\n".join(exception_lines(one, has_traceback)) for one in entries))
    if history.get("truncated"):
        session.say(
            f"\nThere are older ones: -n {2 * count} shows more, if the cluster keeps them."
        )
    return 0


def exception_lines(failure: _Entry, has_traceback: bool) -> list[str]:
    """Return the lines that describe an exception."""
    stacktrace = failure.get("stacktrace", "")
    place, said = place_of(stacktrace), message_of(failure)
    at = datetime.fromtimestamp(failure.get("timestamp", 0) / 1000).strftime("%d.%m.%Y %H:%M:%S")
    where = ""
    if failure.get("taskName"):
        where = f" in {failure['taskName']}"
    if failure.get("endpoint"):
        where += f" on {failure['endpoint']}"
    if failure.get("taskManagerId"):
        where += f" (TaskManager {failure['taskManagerId']})"
    lines = [f"{place}: {said}" if place else said, f"  {at}{where}"]
    others = failure.get("concurrentExceptions") or []
    if others:
        messages = {message_of(one) for one in others} - {said}
        lines.append(
            f"  {len(others)} more failed with it"
            + "".join(f"\n    {one}" for one in sorted(messages))
        )
    if has_traceback and stacktrace:
        lines += [f"  {line}" for line in stacktrace.rstrip().splitlines()]
    return lines


def place_of(stacktrace: str) -> str:
    """Return `file, line n` of the innermost frame in a file of the user's; an empty string if there is none."""
    frames = [found for found in _FRAME.finditer(stacktrace) if is_user_file(found[1])]
    if frames:
        return f"{frames[-1][1]}, line {frames[-1][2]}"
    place = _PLACE.search(stacktrace)
    return f"{place['file']}, line {place['line']}" if place else ""


def message_of(failure: _Entry) -> str:
    """Return class and text of an exception in one line, without the place, which is shown before."""
    first = next(
        (line.strip() for line in failure.get("stacktrace", "").splitlines() if line.strip()), ""
    )
    name = str(failure.get("exceptionName", "")).rpartition(".")[2]
    text = _PLACE.sub(lambda found: f"(in operator '{found['operator']}')", first)
    if not text or text.startswith("Traceback "):
        return name or "unknown error"
    # Texts of our own errors begin with the class of the user's exception, those of others with their own.
    return (
        text
        if re.match(r"[\w.]*(Error|Exception|Exit|Interrupt|Warning)\b", text)
        else f"{name}: {text}"
    )
