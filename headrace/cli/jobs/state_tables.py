"""Lines that show state: operators and snapshots of a job, sizes of an operator's states, parts and rows of one state.

Pure: all facts come from answers of the REST routes `/jobs/<id>/state`.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from headrace.cli.figures import size_or_dash, table_lines, utc_text
from headrace.core.error_text import on_one_line

_Answer = Mapping[str, Any]
_PARTS_SHOWN: Final = 10
"""Subtasks, key groups and keys that are listed: the largest ones."""


def operator_lines(info: _Answer) -> list[str]:
    """Return the operators of a job or snapshot, and the snapshots of the job."""
    is_stored = info.get("snapshot") is not None
    lines: list[str] = []
    if info.get("problem"):
        lines.append(on_one_line(str(info["problem"])))
    if info["operators"]:
        sizes = ["rows", "size"] if is_stored else []
        lines += table_lines(
            ["#", "operator", "name", "parallelism", "key groups", *sizes],
            [
                [
                    str(number),
                    title_of(one),
                    str(one["name"]),
                    str(one["parallelism"]),
                    str(one["max-parallelism"]),
                    *([_count(one["rows"]), _bytes(one["size"])] if is_stored else []),
                ]
                for number, one in enumerate(info["operators"], 1)
            ],
            right={0, 3, 4, 5, 6},
        )
    if info["snapshots"]:
        lines += ["", *_snapshot_lines(info["snapshots"])]
    return lines or ["No operator keeps state, and there is no snapshot."]


def title_of(operator: _Answer) -> str:
    """Return the name that people use for an operator: its uid, or its name without one."""
    return str(operator["uid"] or operator["name"])


def _snapshot_lines(snapshots: Sequence[_Answer]) -> list[str]:
    return table_lines(
        ["snapshot", "kind", "time", "size", "path, or why it cannot be read"],
        [
            [
                str(one["id"]),
                ", ".join(filter(None, (one["kind"], (one.get("savepoint-format") or "").lower()))),
                utc_text(one["timestamp"]),
                _bytes(one["size"]),
                str(one["problem"] or one["path"]),
            ]
            for one in snapshots
        ],
        right={0, 3},
        cut=False,
    )


def states_lines(answer: _Answer) -> list[str]:
    """Return the states of an operator with their sizes and skews."""
    if not answer["states"]:
        return [f"{answer['title']} keeps no state."]
    heads = ["#", "state", "table", "kind", "rows", "size", "subtask skew", "key group skew"]
    notes = [notes_of(one) for one in answer["states"]]
    rows = [
        [
            str(number),
            str(one["name"]),
            str(one["table"]),
            str(one["kind"] or "-"),
            _count(one["rows"]),
            _bytes(one["size"]),
            _skew(one["subtask-skew"]),
            _skew(one["key-group-skew"]),
            *([notes[number - 1]] if any(notes) else []),
        ]
        for number, one in enumerate(answer["states"], 1)
    ]
    heads += ["notes"] if any(notes) else []
    return [_moment(answer), *table_lines(heads, rows, right={0, 4, 5, 6, 7}, cut=False)]


def notes_of(state: _Answer) -> str:
    """Return the remarks on the figures of a state."""
    notes = [
        "waits in the restored checkpoint: no record has used it" if state["is-waiting"] else "",
        "only partly counted" if state["is-partial"] else "",
        f"{_count(state['expired-rows'])} rows past their time to live" if state["expired-rows"] else "",
        f"{', '.join(state['unreadable'])}: pickles, not loaded" if state["unreadable"] else "",
    ]  # fmt: skip
    return "; ".join(note for note in notes if note)


def parts_lines(answer: _Answer, state: _Answer) -> list[str]:
    """Return the largest subtasks, key groups and keys of one state, and when its timers fire."""
    kind = f" {state['kind']}" if state["kind"] else ""
    lines = [
        f"{state['name']} ({state['table']}{kind}) of {answer['title']}: {_count(state['rows'])} rows, "
        f"{_bytes(state['size'])}",
        _moment(answer),
    ]
    if notes_of(state):
        lines.append(notes_of(state))
    subtasks = [(str(one["subtask"]), one) for one in state["subtasks"]]
    lines += _largest("subtask", subtasks, state["subtask-skew"])
    groups = [
        (f"{one['key-group']} (subtask {one['subtask']})", one) for one in state["key-groups"]
    ]
    lines += _largest("key group", groups, state["key-group-skew"])
    keys = [(str(one["key"]), one) for one in state["keys"]]
    lines += _largest("largest key", keys, None, "" if state["are-keys-exact"] else "at least")
    for timers in state["timers"]:
        due = [f"{_count(sum(timers['due'].values()))}, how soon is not known without a watermark"]
        if timers["domain"] != "event" or answer.get("watermark") is not None:
            due = [
                f"{_count(count)} {word if word in ('due', 'later') else f'within {word}'}"
                for word, count in timers["due"].items()
                if count
            ]
        lines += [
            "",
            f"{timers['domain']} timers: next {utc_text(timers['next'])}; {', '.join(due)}",
        ]
    if state["oldest-window"] is not None:
        lines += ["", f"oldest window: {utc_text(state['oldest-window'])}"]
    return lines


def _largest(
    word: str, parts: Sequence[tuple[str, _Answer]], skew: float | None, note: str = ""
) -> list[str]:
    if not parts:
        return []
    largest = sorted(parts, key=lambda part: part[1]["size"], reverse=True)
    more = len(largest) - _PARTS_SHOWN
    remark = f"the largest has {_skew(skew)} the mean" if skew is not None else note
    return [
        "",
        *table_lines(
            [word, "rows", "size", remark],
            [
                [name, _count(one["rows"]), _bytes(one["size"]), ""]
                for name, one in largest[:_PARTS_SHOWN]
            ],
            right={1, 2},
        ),
        *([f"and {more} smaller ones"] if more > 0 else []),
    ]


def row_lines(answer: _Answer) -> list[str]:
    """Return the rows of a state, and a note on rows left out."""
    names = [str(one["name"]) for one in answer["columns"]]
    rows = [[str(row["subtask"]), *map(_value_text, row["values"])] for row in answer["rows"]]
    lines = table_lines(["subtask", *names], rows, right={0}) if rows else ["No rows."]
    return [*lines, *map(on_one_line, answer["notes"])]


def _moment(answer: _Answer) -> str:
    of = "now" if answer.get("snapshot") is None else f"snapshot {answer['snapshot']}"
    watermark = answer.get("watermark")
    beside = "" if watermark is None else f", watermark {utc_text(watermark)}"
    return f"as of {utc_text(answer['taken-at'])} UTC ({of}){beside}"


def _value_text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _count(value: int | None) -> str:
    return "-" if value is None else f"{value:,}"


def _bytes(value: int | None) -> str:
    return size_or_dash(-1 if value is None else value)


def _skew(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f}x"
