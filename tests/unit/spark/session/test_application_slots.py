"""Number of tasks that an application can run at once, asked again and again."""

from typing import Any

import pytest
from pyspark.core.context import SparkContext

from headrace.spark.session.jvm import ApplicationSlots, JvmGoneError


class Calls:
    """Scala's SparkContext and its profiles: notes every call of the JVM."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.room = 2
        self.is_stopped_in_jvm = False
        self.added: list[Any] = []

    def resourceProfileManager(self) -> "Calls":
        self.calls.append("resourceProfileManager")
        return self

    def defaultResourceProfile(self) -> str:
        self.calls.append("defaultResourceProfile")
        return "default"

    def addResourceProfile(self, profile: Any) -> None:
        self.added.append(profile)

    def isStopped(self) -> bool:
        self.calls.append("isStopped")
        return self.is_stopped_in_jvm

    def maxNumConcurrentTasks(self, profile: Any) -> int:
        self.calls.append(f"maxNumConcurrentTasks({profile})")
        return self.room


class JavaContext:
    """What stands between Python's context and Scala's."""

    def __init__(self, scala: Calls) -> None:
        self._scala = scala

    def sc(self) -> Calls:
        self._scala.calls.append("sc")
        return self._scala


class FakeContext(SparkContext):
    """Over calls that are noted; there is no JVM behind it."""

    def __init__(self, conf: dict[str, str] | None = None) -> None:
        self.scala = Calls()
        self._jsc: Any = JavaContext(self.scala)
        self._read = conf or {}

    def getConf(self) -> Any:
        self.scala.calls.append("getConf")
        return self._read

    def stop(self) -> None:
        self._jsc = None


def test_what_stays_the_same_is_fetched_once() -> None:
    context = FakeContext()
    slots = ApplicationSlots(context)
    context.scala.calls.clear()
    assert [slots.count(), slots.count()] == [2, 2]
    assert context.scala.calls == ["isStopped", "maxNumConcurrentTasks(default)"] * 2


def test_executors_that_come_and_go_are_seen() -> None:
    context = FakeContext()
    slots = ApplicationSlots(context)
    before = slots.count()
    context.scala.room = 5
    assert (before, slots.count()) == (2, 5)


def test_a_profile_is_made_known_before_tasks_of_it_are_counted() -> None:
    class Profile:
        _java_resource_profile = "two cores"

    context = FakeContext()
    slots = ApplicationSlots(context, Profile())
    assert context.scala.added == ["two cores"]
    assert slots.count() == 2
    assert context.scala.calls[-1] == "maxNumConcurrentTasks(two cores)"


def test_nobody_can_say_where_executors_come_on_demand() -> None:
    assert (
        ApplicationSlots(FakeContext({"spark.dynamicAllocation.enabled": "True"})).count() is None
    )


def test_a_context_that_is_stopped_in_between_is_a_host_that_is_gone() -> None:
    in_python, in_jvm = FakeContext(), FakeContext()
    slots = [ApplicationSlots(in_python), ApplicationSlots(in_jvm)]
    in_python.stop()
    in_jvm.scala.is_stopped_in_jvm = True
    with pytest.raises(JvmGoneError, match="its SparkSession was stopped"):
        slots[0].count()
    with pytest.raises(JvmGoneError, match="its SparkContext was stopped"):
        slots[1].count()
