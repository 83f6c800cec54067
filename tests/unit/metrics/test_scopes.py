"""Scopes: Flink's formats, and those that settings give."""

from headrace.core.config import Settings
from headrace.metrics.scopes import GroupKind, ScopeFormats

VARIABLES = {
    "host": "h",
    "tm_id": "tm-1",
    "job_name": "orders",
    "task_name": "count",
    "operator_name": "Map",
    "subtask_index": "3",
}


def scope(kind: GroupKind, **settings: str) -> str:
    found = {f"metrics.scope.{key.replace('_', '-')}": value for key, value in settings.items()}
    return ".".join(ScopeFormats(Settings(found)).scope(kind, VARIABLES))


def test_scopes_are_those_of_flink() -> None:
    assert {kind: scope(kind) for kind in GroupKind} == {
        GroupKind.JOB_MANAGER: "h.jobmanager",
        GroupKind.JOB_MANAGER_JOB: "h.jobmanager.orders",
        GroupKind.JOB_MANAGER_OPERATOR: "h.jobmanager.orders.Map",
        GroupKind.TASK_MANAGER: "h.taskmanager.tm-1",
        GroupKind.TASK_MANAGER_JOB: "h.taskmanager.tm-1.orders",
        GroupKind.TASK: "h.taskmanager.tm-1.orders.count.3",
        GroupKind.OPERATOR: "h.taskmanager.tm-1.orders.Map.3",
    }


def test_a_format_may_be_changed() -> None:
    assert scope(GroupKind.TASK, task="all.<task_name>-<subtask_index>") == "all.count-3"


def test_a_star_stands_for_the_format_of_the_group_above() -> None:
    assert scope(GroupKind.OPERATOR, task="t.<task_name>", operator="*.<operator_name>") == (
        "t.count.Map"
    )


def test_a_variable_that_a_group_has_not_stays_as_it_is() -> None:
    assert scope(GroupKind.JOB_MANAGER, jm="<host>.<cluster>") == "h.<cluster>"


def test_a_variable_in_a_value_is_not_replaced_in_its_turn() -> None:
    formats = ScopeFormats(Settings({"metrics.scope.jm": "<host>"}))
    assert formats.scope(GroupKind.JOB_MANAGER, {"host": "<tm_id>", "tm_id": "x"}) == ("<tm_id>",)
