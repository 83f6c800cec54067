"""Entries that are frozen while they go on changing: snapshots against copies, under any order of accesses."""

import copy
from typing import Any

import hypothesis.strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from headrace.state.heap.copy_on_write_map import CopyOnWriteMap, FrozenEntries

KEYS = st.sampled_from("abcdefgh")


class FreezingMachine(RuleBasedStateMachine):
    """A dict as the model; a frozen view must equal the copy that was taken with it, until it is released."""

    @initialize(first=st.dictionaries(KEYS, st.lists(st.integers(), max_size=2)))
    def begin(self, first: dict[str, list[int]]) -> None:
        self.model = copy.deepcopy(first)
        self.live: Any = copy.deepcopy(first)
        self.views: list[tuple[FrozenEntries, dict[str, list[int]]]] = []

    def _settled(self, entries: dict[str, list[int]]) -> None:
        self.live = entries

    @rule()
    def freeze(self) -> None:
        if isinstance(self.live, dict):
            self.live = CopyOnWriteMap(self.live, self._settled)
        self.views.append((self.live.freeze(), copy.deepcopy(self.model)))

    @rule(index=st.integers(0, 5))
    def release(self, index: int) -> None:
        if index < len(self.views):
            self.views.pop(index)[0].release()

    @rule(key=KEYS, value=st.integers())
    def put(self, key: str, value: int) -> None:
        self.live[key] = [value]
        self.model[key] = [value]

    @rule(key=KEYS, value=st.integers())
    def change_in_place(self, key: str, value: int) -> None:
        held = self.live.get(key)
        assert held == self.model.get(key)
        if held is not None:
            held.append(value)
            self.model[key].append(value)

    @rule(key=KEYS, value=st.integers())
    def read_and_write_through_one_reference(self, key: str, value: int) -> None:
        entries = self.live
        entries[key] = [*entries.get(key, ()), value]
        self.model[key] = [*self.model.get(key, ()), value]

    @rule(key=KEYS)
    def append_to_default(self, key: str) -> None:
        self.live.setdefault(key, []).append(7)
        self.model.setdefault(key, []).append(7)

    @rule(key=KEYS)
    def remove(self, key: str) -> None:
        assert (key in self.live) == (key in self.model)
        if key in self.model:
            del self.live[key]
            del self.model[key]

    @rule(key=KEYS)
    def pop(self, key: str) -> None:
        assert self.live.pop(key, None) == self.model.pop(key, None)

    @invariant()
    def views_are_what_was_frozen(self) -> None:
        for view, wanted in self.views:
            entries = list(view)
            assert dict(zip(entries, view.values_of(entries), strict=True)) == wanted

    @invariant()
    def live_entries_are_those_of_the_model(self) -> None:
        assert sorted(self.live) == sorted(self.model)
        assert len(self.live) == len(self.model)


TestFreezing = FreezingMachine.TestCase


def test_without_snapshots_one_dict_is_left_after_few_accesses() -> None:
    settled: list[dict[int, int]] = []
    entries = CopyOnWriteMap({number: number for number in range(100)}, settled.append)
    frozen = entries.freeze()
    for number in range(50, 150):
        entries[number] = -number
    frozen.release()
    for _ in range(20):
        entries.get(0)
    assert len(settled) == 1
    assert settled[0] == {n: -n if n >= 50 else n for n in range(150)}
