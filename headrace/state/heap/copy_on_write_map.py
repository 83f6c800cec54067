"""CopyOnWriteMap: the entries of a state, which can be frozen for a snapshot while the state goes on changing.

Freezing creates a new dict: frozen entries stay as they are, and changes go to a layer above. A value in a frozen
layer is copied first if it is mutable, so that changes in place stay out of the snapshot. Once a snapshot is written
its layer may change again; the layers above sink into it, a few entries at each access, until one dict is left.
Source: Flink CopyOnWriteStateMap, which copies entries older than the oldest snapshot that is being written.
"""

from collections.abc import Callable, Iterator, Sequence
from itertools import filterfalse, repeat
from typing import Any, Final

from headrace.core.types.record_copies import UNCHANGING, private_copy

_SUNK_PER_ACCESS: Final = 8
Entries = dict[Any, Any]


class _Mark:
    """Placeholder for an entry that does not exist."""


_MISSING: Final = _Mark()
_GONE: Final = _Mark()
"""Mark in a layer for an entry that was removed, even if a lower layer holds it."""


class FrozenEntries:
    """Frozen entries, readable by any thread until `release`."""

    def __init__(self, layers: tuple[Entries, ...]) -> None:
        self._layers = layers
        self.depth = len(layers)
        # Set by the writing thread, read by the mailbox: one assignment, nothing to lock.
        self.is_released = False

    def __iter__(self) -> Iterator[Any]:
        if len(self._layers) == 1:
            return iter(self._layers[0])  # the lowest layer has no marks
        return self._all_entries()

    def _all_entries(self) -> Iterator[Any]:
        """Yield entries from the top layer down, without overridden ones; loops in C, as the task runs meanwhile."""
        for index in range(len(self._layers) - 1, -1, -1):
            layer = self._layers[index]
            left: Iterator[Any] = iter(layer) if index == 0 else _not_gone(layer)
            for higher in self._layers[index + 1 :]:
                left = filterfalse(higher.__contains__, left)
            yield from left

    def __contains__(self, entry: Any) -> bool:
        for layer in reversed(self._layers):
            value = layer.get(entry, _MISSING)
            if value is not _MISSING:
                return value is not _GONE
        return False

    def values_of(self, entries: Sequence[Any]) -> list[Any]:
        """Return the values of `entries`, in their order; every entry must exist."""
        if len(self._layers) == 1:
            return list(map(self._layers[0].__getitem__, entries))
        values: list[Any] = [_MISSING] * len(entries)
        for layer in reversed(self._layers):
            lower = [index for index, value in enumerate(values) if value is _MISSING]
            found = map(layer.get, map(entries.__getitem__, lower), repeat(_MISSING))
            for index, value in zip(lower, found, strict=True):
                values[index] = value
        return values

    def release(self) -> None:
        """Allow changes of the entries again. Idempotent."""
        self._layers = ()
        self.is_released = True


def _not_gone(layer: Entries) -> Iterator[Any]:
    return (entry for entry, value in layer.items() if value is not _GONE)


class CopyOnWriteMap:
    """Mapping that replaces the dict of a state while snapshots are written. Mailbox thread only.

    `on_settled` is called with the one dict that is left once all snapshots are released.
    """

    def __init__(self, base: Entries, on_settled: Callable[[Entries], None]) -> None:
        self._layers = [base]
        self._top: Entries = {}
        self._frozen: list[FrozenEntries] = []
        self._on_settled = on_settled

    def freeze(self) -> FrozenEntries:
        """Return the entries as they are now."""
        if self._top:
            self._layers.append(self._top)
            self._top = {}
        frozen = FrozenEntries(tuple(self._layers))
        self._frozen.append(frozen)
        return frozen

    # Settling comes last in each method: it may end the layers, and whoever still holds this object then goes on in
    # the dict that is left.

    def get(self, entry: Any, default: Any = None) -> Any:
        value = self._top.get(entry, _MISSING)
        if value is _MISSING:
            value = self._below(entry)
            if type(value) not in UNCHANGING and type(value) is not _Mark:
                copied = private_copy(value)
                if copied is not value:
                    self._top[entry] = value = copied
        self._settle()
        return default if type(value) is _Mark else value

    def __contains__(self, entry: Any) -> bool:
        value = self._top.get(entry, _MISSING)
        if value is _MISSING:
            value = self._below(entry)
        return type(value) is not _Mark

    def __getitem__(self, entry: Any) -> Any:
        value = self.get(entry, _MISSING)
        if value is _MISSING:
            raise KeyError(entry)
        return value

    def __setitem__(self, entry: Any, value: Any) -> None:
        self._top[entry] = value
        self._settle()

    def __delitem__(self, entry: Any) -> None:
        if entry not in self:
            raise KeyError(entry)
        self._remove(entry)
        self._settle()

    def pop(self, entry: Any, default: Any = None) -> Any:
        value = self.get(entry, _MISSING)
        if value is _MISSING:
            return default
        self._remove(entry)
        return value

    def setdefault(self, entry: Any, default: Any) -> Any:
        value = self.get(entry, _MISSING)
        if value is _MISSING:
            self._top[entry] = value = default
        return value

    def __iter__(self) -> Iterator[Any]:
        return iter(list(FrozenEntries((*self._layers, self._top))))

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def _remove(self, entry: Any) -> None:
        if self._layers:
            self._top[entry] = _GONE
        else:
            del self._top[entry]

    def _below(self, entry: Any) -> Any:
        for layer in reversed(self._layers):
            value = layer.get(entry, _MISSING)
            if value is not _MISSING:
                return value
        return _MISSING

    def _settle(self) -> None:
        """Move some entries down into the lowest layer that no snapshot reads."""
        frozen = self._frozen
        while frozen and frozen[-1].is_released:
            frozen.pop()
        depth = frozen[-1].depth if frozen else 0
        layers = self._layers
        if depth == len(layers):
            return
        target = layers[depth]
        source = layers[depth + 1] if depth + 1 < len(layers) else self._top
        for _ in range(min(_SUNK_PER_ACCESS, len(source))):
            entry, value = source.popitem()
            if value is _GONE and depth == 0:
                target.pop(entry, None)
            else:
                target[entry] = value
        if source:
            return
        if source is not self._top:
            del layers[depth + 1]
        elif depth == 0:
            self._layers, self._top = [], target
            self._on_settled(target)
