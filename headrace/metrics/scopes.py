"""Scopes: the names and variables of a group of metrics, from formats in the settings.

A format is a dotted list of words and variables, such as `<host>.taskmanager.<tm_id>`. A leading `*` stands for the
format of the parent group. The logical scope is the same for all groups of a kind: filters compare it.
Source: Flink ScopeFormat, ScopeFormats, MetricOptions.
"""

import enum
import re
from collections.abc import Mapping
from typing import Final

from headrace.core.config import ConfigOption, Settings

_VARIABLE: Final = re.compile(r"<([^<>]+)>")


class GroupKind(enum.Enum):
    """Kinds of groups; the value is the logical scope."""

    JOB_MANAGER = "jobmanager"
    JOB_MANAGER_JOB = "jobmanager.job"
    JOB_MANAGER_OPERATOR = "jobmanager.job.operator"
    TASK_MANAGER = "taskmanager"
    TASK_MANAGER_JOB = "taskmanager.job"
    TASK = "taskmanager.job.task"
    OPERATOR = "taskmanager.job.task.operator"


def _format_option(key: str, default: str, whose: str) -> ConfigOption[str]:
    return ConfigOption(
        f"metrics.scope.{key}", str, default, f"Names before the metrics of {whose}."
    )


SCOPE_JM: Final = _format_option("jm", "<host>.jobmanager", "the driver")
SCOPE_JM_JOB: Final = _format_option(
    "jm-job", "<host>.jobmanager.<job_name>", "a job in the driver"
)
SCOPE_JM_OPERATOR: Final = _format_option(
    "jm-operator",
    "<host>.jobmanager.<job_name>.<operator_name>",
    "an operator's coordinator in the driver",
)
SCOPE_TM: Final = _format_option("tm", "<host>.taskmanager.<tm_id>", "a TaskManager")
SCOPE_TM_JOB: Final = _format_option(
    "tm-job", "<host>.taskmanager.<tm_id>.<job_name>", "a job in a TaskManager"
)
SCOPE_TASK: Final = _format_option(
    "task", "<host>.taskmanager.<tm_id>.<job_name>.<task_name>.<subtask_index>", "a task"
)
SCOPE_OPERATOR: Final = _format_option(
    "operator",
    "<host>.taskmanager.<tm_id>.<job_name>.<operator_name>.<subtask_index>",
    "an operator",
)
SCOPE_DELIMITER: Final = ConfigOption(
    "metrics.scope.delimiter", str, ".", "Character between the parts of a metric's whole name."
)
_OPTIONS: Final = {
    GroupKind.JOB_MANAGER: SCOPE_JM,
    GroupKind.JOB_MANAGER_JOB: SCOPE_JM_JOB,
    GroupKind.JOB_MANAGER_OPERATOR: SCOPE_JM_OPERATOR,
    GroupKind.TASK_MANAGER: SCOPE_TM,
    GroupKind.TASK_MANAGER_JOB: SCOPE_TM_JOB,
    GroupKind.TASK: SCOPE_TASK,
    GroupKind.OPERATOR: SCOPE_OPERATOR,
}
_ABOVE: Final = {
    GroupKind.JOB_MANAGER_JOB: GroupKind.JOB_MANAGER,
    GroupKind.JOB_MANAGER_OPERATOR: GroupKind.JOB_MANAGER_JOB,
    GroupKind.TASK_MANAGER_JOB: GroupKind.TASK_MANAGER,
    GroupKind.TASK: GroupKind.TASK_MANAGER_JOB,
    GroupKind.OPERATOR: GroupKind.TASK,
}


class ScopeFormats:
    """The formats of all kinds of groups."""

    def __init__(self, settings: Settings) -> None:
        self._parts: Final[dict[GroupKind, tuple[str, ...]]] = {}
        for kind, option in _OPTIONS.items():
            parts = tuple(settings.get_option(option).split("."))
            if parts[0] == "*" and kind in _ABOVE:
                parts = (*self._parts[_ABOVE[kind]], *parts[1:])
            self._parts[kind] = parts

    def scope(self, kind: GroupKind, variables: Mapping[str, str]) -> tuple[str, ...]:
        """Return the names before a group's metrics; a variable that the group lacks stays unchanged."""
        return tuple(
            _VARIABLE.sub(lambda found: variables.get(found[1], found[0]), part)
            for part in self._parts[kind]
        )
