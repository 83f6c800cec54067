"""Setters that change the operator behind a stream or a sink; each returns the stream it was called on.

Source: Flink SingleOutputStreamOperator, DataStreamSink.
"""

import re
from abc import ABC, abstractmethod
from typing import Self

from headrace.api.function_checks import (
    check_name,
    guarded_spec,
)
from headrace.api.settings.program_settings import check_buffer_timeout, check_max_parallelism
from headrace.api.settings.slot_sharing_group import SlotSharingGroup
from headrace.api.transformations import OperatorTransformation, batch_type_of
from headrace.core.ids import ID_PATTERN, ID_TEXT_FORM
from headrace.functions.failures import FailurePolicy
from headrace.functions.process import OutputTag
from headrace.graph.stream_graph import ChainingStrategy


class OperatorProperties(ABC):
    """Setters common to streams and sinks: name, uid, parallelism, chaining, slot sharing."""

    @abstractmethod
    def _operator(self) -> OperatorTransformation:
        """Return the operator to change; ProgramError on a stream that no single operator made."""

    def name(self, name: str) -> Self:
        """Name the operator: shown in plans, metrics and errors."""
        self._operator().name = check_name(name, "a name")
        return self

    def uid(self, uid: str) -> Self:
        """Give the operator a stable id, unique in the job, that ties its state to it across restarts."""
        self._operator().uid = check_name(uid, "a uid")
        return self

    def set_uid_hash(self, uid_hash: str) -> Self:
        """Set the hashed id itself, 32 hexadecimal digits."""
        if not re.fullmatch(ID_PATTERN, check_name(uid_hash, "a uid hash")):
            raise ValueError(f"a uid hash must be {ID_TEXT_FORM}, not '{uid_hash}'")
        self._operator().uid_hash = uid_hash
        return self

    def set_parallelism(self, parallelism: int) -> Self:
        """Set the number of subtasks of this operator, at least 1."""
        self._operator().set_parallelism(parallelism)
        return self

    def set_description(self, description: str) -> Self:
        """Set the longer text that plans show."""
        self._operator().description = check_name(description, "a description")
        return self

    def disable_chaining(self) -> Self:
        """Never chain the operator with others."""
        self._operator().chaining = ChainingStrategy.NEVER
        return self

    def slot_sharing_group(self, slot_sharing_group: str | SlotSharingGroup) -> Self:
        """Put the operator into a group, by its name; operators of different groups never share a slot.

        Later operators inherit the group of their inputs. The first group is `default`. If a group is given with
        resources, they also apply wherever else the program names the group.
        """
        is_named = isinstance(slot_sharing_group, str)
        name = slot_sharing_group if is_named else slot_sharing_group.name
        operator = self._operator()
        operator.slot_sharing_group = check_name(name, "a slot sharing group")
        operator.slot_resources = None if is_named else slot_sharing_group.profile
        return self


class StreamProperties(OperatorProperties):
    """Setters of streams that sinks lack, such as max parallelism."""

    def get_name(self) -> str:
        """Return the name of the operator that made this stream."""
        return self._operator().name

    def set_max_parallelism(self, max_parallelism: int) -> Self:
        """Set the number of key groups of this operator, 1..32768: the bound for rescaling it."""
        self._operator().max_parallelism = check_max_parallelism(max_parallelism)
        return self

    def force_non_parallel(self) -> Self:
        """Fix parallelism and max parallelism at 1."""
        operator = self._operator()
        operator.set_parallelism(1)
        operator.max_parallelism = 1
        operator.is_parallel = False
        return self

    def set_buffer_timeout(self, timeout_millis: int) -> Self:
        """Bound the wait before partly filled buffers of this operator's output are sent; -1 never sends them early."""
        self._operator().buffer_timeout_ms = check_buffer_timeout(timeout_millis)
        return self

    def on_failure(self, policy: FailurePolicy | OutputTag) -> Self:
        """Set what happens to a record for which the function of map, flat_map, filter or process raises.

        FAIL fails the job, SKIP drops the record and counts it in `numRecordsFailed`; an OutputTag sends (record,
        "error class: text") to its side output. The policy also applies to a record whose result does not fit the
        declared type. TypeError for any other policy.

        Example:
            >>> from headrace import FailurePolicy, OutputTag, StreamExecutionEnvironment
            >>> env = StreamExecutionEnvironment.get_execution_environment()
            >>> poison = OutputTag("poison")
            >>> numbers = env.from_collection(["1", "two"]).map(int).on_failure(poison)
            >>> _ = numbers.get_side_output(poison).print()
        """
        operator = self._operator()
        _check_policy(policy)
        if policy is not FailurePolicy.FAIL:
            is_keyed = any(batch_type_of(one).key_type is not None for one in operator.inputs)
            tag = policy if isinstance(policy, OutputTag) else None
            operator.spec = guarded_spec(operator.spec, operator.name, tag, is_keyed=is_keyed)
        return self

    def start_new_chain(self) -> Self:
        """Begin a new chain with this operator; later ones may still join it."""
        self._operator().chaining = ChainingStrategy.HEAD
        return self


def _check_policy(policy: object) -> None:
    if not isinstance(policy, FailurePolicy | OutputTag):
        raise TypeError(
            f"on_failure takes FailurePolicy.FAIL, FailurePolicy.SKIP or an OutputTag, not {policy!r}"
        )
