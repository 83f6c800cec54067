"""Handles of states in RocksDB; they read and write bytes, so that a value is a copy that must be written back.

Lists have one stored value per element, under a position that only grows; maps have one per entry.

Source: Flink RocksDBValueState, RocksDBListState, RocksDBMapState, RocksDBReducingState, RocksDBAggregatingState.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Final

from headrace.functions.state import (
    AggregatingState,
    AggregatingStateDescriptor,
    ListState,
    ListStateDescriptor,
    MapState,
    MapStateDescriptor,
    ReducingState,
    ReducingStateDescriptor,
    StateDescriptor,
    ValueState,
    ValueStateDescriptor,
)
from headrace.state.backend import EntryScope
from headrace.state.rocksdb.keys import (
    CompositeKeys,
    Lifetime,
    form_of_keys,
    from_bytes,
    position_bytes,
    stored_form,
    stored_value,
)
from headrace.state.ttl import NO_STAMP, TtlClocks, TtlRules
from headrace.state.typed_state import KeyForms, TypedState, no_accumulator

_ABSENT: Final = object()
_ACCESSES_PER_SWEEP: Final = 128
_ROWS_PER_SWEEP: Final = 256


@dataclass
class Positions:
    """Gives each list element a position higher than all before it."""

    following: int = 0

    def take(self) -> int:
        """Return the next position."""
        self.following += 1
        return self.following - 1


@dataclass(frozen=True)
class StateHome:
    """Key encoding, clocks and positions shared by all state handles of a backend."""

    keys: CompositeKeys
    clocks: TtlClocks
    positions: Positions = field(default_factory=Positions)


class RocksState(TypedState):
    """Base of the handles; `table` is the state's column family, which maps bytes to bytes."""

    def __init__(
        self,
        descriptor: StateDescriptor,
        scope: EntryScope,
        is_window: bool,
        table: Any,
        home: StateHome,
    ) -> None:
        super().__init__(descriptor, scope)
        self.is_window = is_window
        self.table = table
        rules = TtlRules.of(descriptor)
        self.lifetime = None if rules is None else Lifetime(rules, home.clocks.of(rules))
        self._home = home
        self._accesses = 0
        self._unswept_from = b""

    def sweep(self, row_count: int) -> None:
        """Examine the next rows of the table and delete expired ones."""
        rows = list(islice(self.table.items(from_key=self._unswept_from), row_count))
        for composite, form in rows:
            if self.is_expired(form):
                self.table.delete(composite)
        # Behind the last row that was seen, or from the beginning again.
        self._unswept_from = rows[-1][0] + b"\x00" if len(rows) == row_count else b""

    def clear(self) -> None:
        for composite, _ in list(self._rows(self._prefix())):
            self.table.delete(composite)

    def prefix_of(self, entry: Any) -> bytes:
        """Return the common prefix of all composite keys of an entry."""
        return self._home.keys.of_entry(entry, has_namespace=self.is_window)

    def _prefix(self) -> bytes:
        return self.prefix_of(self.scope.entry)

    def _rows(self, prefix: bytes) -> Iterator[tuple[bytes, bytes]]:
        for composite, form in self.table.items(from_key=prefix):
            if not composite.startswith(prefix):
                return
            yield composite, form

    def _put(self, composite: bytes, value: Any) -> None:
        stamp_ms, lifetime = NO_STAMP, self.lifetime
        if lifetime is not None:
            stamp_ms = lifetime.stamp_over(self.table, composite)
            self._note_access(lifetime.rules)
        self.table.put(composite, stored_form(value, stamp_ms))

    def _note_access(self, rules: TtlRules) -> None:
        self._accesses += 1
        if self._accesses >= _ACCESSES_PER_SWEEP and rules.sweeps_database:
            self._accesses = 0
            self.sweep(_ROWS_PER_SWEEP)

    def is_expired(self, form: bytes) -> bool:
        """Return whether a stored value has expired."""
        lifetime = self.lifetime
        return lifetime is not None and lifetime.is_over(form, lifetime.clock.now_ms())

    def _seen(self, composite: bytes, form: bytes) -> Any:
        """Return the value that a reader sees, or _ABSENT; delete an expired value, renew the last access if set so."""
        if self.lifetime is not None:
            rules = self.lifetime.rules
            self._note_access(rules)
            if self.is_expired(form):
                self.table.delete(composite)
                return stored_value(form) if rules.returns_expired else _ABSENT
            if rules.renews_on_read:
                value = stored_value(form)
                self._put(composite, value)
                return value
        return stored_value(form)


class _SingleState(RocksState):
    """Base of states with one stored value per entry, under the prefix itself."""

    def clear(self) -> None:
        self.table.delete(self._prefix())

    def _read(self) -> Any:
        prefix = self._prefix()
        form = self.table.get(prefix)
        return _ABSENT if form is None else self._seen(prefix, form)

    def _current(self, prefix: bytes) -> Any:
        """Return the value to continue from, or _ABSENT."""
        form = self.table.get(prefix)
        if form is None or self.is_expired(form):
            return _ABSENT
        return stored_value(form)

    def _take(self, entry: Any) -> Any:
        prefix = self.prefix_of(entry)
        value = self._current(prefix)
        self.table.delete(prefix)
        return value


class RocksValueState(_SingleState, ValueState[Any]):
    """State of one value."""

    kind = "value"

    def value(self) -> Any:
        value = self._read()
        return None if value is _ABSENT else value

    def update(self, value: Any) -> None:
        if value is None:
            self.clear()
        else:
            self._put(self._prefix(), self._kept(value))


class RocksReducingState(_SingleState, ReducingState[Any]):
    """State of the fold of added values."""

    kind = "reducing"

    def __init__(self, descriptor: ReducingStateDescriptor, *rest: Any) -> None:
        super().__init__(descriptor, *rest)
        self._reduce = descriptor.get_reduce_function().reduce

    def get(self) -> Any:
        value = self._read()
        return None if value is _ABSENT else value

    def add(self, value: Any) -> None:
        self._fold(self._prefix(), value)

    def merge_entry(self, target: Any, source: Any) -> None:
        moved = self._take(source)
        if moved is not _ABSENT:
            self._fold(self.prefix_of(target), moved)

    def _fold(self, prefix: bytes, value: Any) -> None:
        held = self._current(prefix)
        self._put(prefix, self._kept(value if held is _ABSENT else self._reduce(held, value)))


class RocksAggregatingState(_SingleState, AggregatingState[Any, Any]):
    """State of an accumulator; the result is computed on each read."""

    kind = "aggregating"

    def __init__(self, descriptor: AggregatingStateDescriptor, *rest: Any) -> None:
        super().__init__(descriptor, *rest)
        self._function = descriptor.get_agg_function()

    def get(self) -> Any:
        held = self._read()
        return None if held is _ABSENT else self._function.get_result(held)

    def add(self, value: Any) -> None:
        prefix = self._prefix()
        held = self._current(prefix)
        if held is _ABSENT:
            held = self._function.create_accumulator()
        changed = self._function.add(value, held)
        if changed is None:
            raise no_accumulator()
        self._put(prefix, self._kept(changed))

    def merge_entry(self, target: Any, source: Any) -> None:
        moved = self._take(source)
        if moved is not _ABSENT:
            prefix = self.prefix_of(target)
            held = self._current(prefix)
            merged = moved if held is _ABSENT else self._kept(self._function.merge(held, moved))
            self._put(prefix, merged)


class RocksListState(RocksState, ListState[Any]):
    """State of a list, with one stored value per element."""

    kind = "list"

    def get(self) -> Iterable[Any]:
        seen = [self._seen(*row) for row in list(self._rows(self._prefix()))]
        return [value for value in seen if value is not _ABSENT]

    def add(self, value: Any) -> None:
        self.add_all((value,))

    def add_all(self, values: Iterable[Any]) -> None:
        self._append(self._prefix(), self._checked(values))

    def update(self, values: Iterable[Any]) -> None:
        checked = self._checked(values)
        self.clear()
        self._append(self._prefix(), checked)

    def merge_entry(self, target: Any, source: Any) -> None:
        prefix = self.prefix_of(target)
        for composite, form in list(self._rows(self.prefix_of(source))):
            self.table.delete(composite)
            if not self.is_expired(form):
                self.table.put(prefix + position_bytes(self._home.positions.take()), form)

    def _append(self, prefix: bytes, values: Iterable[Any]) -> None:
        for value in values:
            self._put(prefix + position_bytes(self._home.positions.take()), value)


class RocksMapState(RocksState, MapState[Any, Any]):
    """State of a map, with one stored value per entry; iteration is over a copy."""

    kind = "map"

    def __init__(self, descriptor: MapStateDescriptor, *rest: Any) -> None:
        super().__init__(descriptor, *rest)
        self._key_forms = KeyForms(descriptor)
        self._form_of_key = form_of_keys(descriptor.key_type)

    def get(self, key: Any) -> Any:
        value = self._look_up(key)
        return None if value is _ABSENT else value

    def contains(self, key: Any) -> bool:
        return self._look_up(key) is not _ABSENT

    def put(self, key: Any, value: Any) -> None:
        key, value = self._key_forms.kept(key), self._kept(value)
        self._put(self._prefix() + self._form_of_key(key), value)

    def put_all(self, dict_value: Mapping[Any, Any]) -> None:
        kept = [(self._key_forms.kept(key), self._kept(value)) for key, value in dict_value.items()]
        prefix = self._prefix()
        for key, value in kept:
            self._put(prefix + self._form_of_key(key), value)

    def remove(self, key: Any) -> None:
        self.table.delete(self._prefix() + self._form_of_key(self._key_forms.looked_up(key)))

    def items(self) -> Iterable[tuple[Any, Any]]:
        prefix = self._prefix()
        seen = [
            (from_bytes(composite[len(prefix) :]), self._seen(composite, form))
            for composite, form in list(self._rows(prefix))
        ]
        return [(key, value) for key, value in seen if value is not _ABSENT]

    def keys(self) -> Iterable[Any]:
        return [key for key, _ in self.items()]

    def values(self) -> Iterable[Any]:
        return [value for _, value in self.items()]

    def is_empty(self) -> bool:
        if self.lifetime is not None:
            return not self.items()
        return next(self._rows(self._prefix()), None) is None

    def _look_up(self, key: Any) -> Any:
        composite = self._prefix() + self._form_of_key(self._key_forms.looked_up(key))
        form = self.table.get(composite)
        return _ABSENT if form is None else self._seen(composite, form)


ROCKS_HANDLES: Final[dict[type[StateDescriptor], type[RocksState]]] = {
    ValueStateDescriptor: RocksValueState,
    ListStateDescriptor: RocksListState,
    MapStateDescriptor: RocksMapState,
    ReducingStateDescriptor: RocksReducingState,
    AggregatingStateDescriptor: RocksAggregatingState,
}
