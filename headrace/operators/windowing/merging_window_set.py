"""MergingWindowSet: the live windows of a key, and the state window that holds the contents of each.

The state window of a window never changes while the window grows, so that merging only moves contents that are in
several state windows. Source: Flink MergingWindowSet.
"""

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any

from headrace.functions.state import MapState
from headrace.functions.windowing.assigners import MergingWindowAssigner
from headrace.functions.windows import MergeCallback, Window

OnMerge = Callable[[Window, Collection[Window], Window, Sequence[Window]], None]
"""Called with (new window, windows merged into it, its state window, state windows whose contents move there)."""


class _Merges(MergeCallback[Window]):
    def __init__(self) -> None:
        self.found: list[tuple[Window, list[Window]]] = []

    def merge(self, to_be_merged: Iterable[Window], merge_result: Window) -> None:
        self.found.append((merge_result, list(to_be_merged)))


class MergingWindowSet:
    """Holds the live windows of the current key; `mapping` is the keyed map state of window -> state window."""

    def __init__(
        self, assigner: MergingWindowAssigner[Any, Window], mapping: MapState[Window, Window]
    ) -> None:
        self._assigner = assigner
        self._mapping = mapping

    def state_window(self, window: Window) -> Window | None:
        """Return the state window of a live window, or None for a window that was removed."""
        return self._mapping.get(window)

    def retire(self, window: Window) -> None:
        """Remove a window."""
        self._mapping.remove(window)

    def add(self, new_window: Window, on_merge: OnMerge) -> Window:
        """Add a window, merge the windows that it touches, and return the live window that now contains it."""
        mapping = self._mapping
        windows = list(mapping.keys())
        merges = _Merges()
        self._assigner.merge_windows(
            [*windows, *(() if new_window in windows else (new_window,))], merges
        )
        result = new_window
        for merged_window, parts in merges.found:
            if new_window in parts:
                result = merged_window
            olds = [window for window in parts if window in windows]
            if olds:
                self._merge(merged_window, olds, on_merge)
        if mapping.get(result) is None:
            mapping.put(result, result)
        return result

    def _merge(self, merged_window: Window, olds: list[Window], on_merge: OnMerge) -> None:
        mapping = self._mapping
        state_windows: list[Window] = []
        for old in olds:
            state_window = mapping.get(old)
            assert state_window is not None
            state_windows.append(state_window)
            mapping.remove(old)
        target = state_windows[0]
        mapping.put(merged_window, target)
        if olds != [merged_window]:
            on_merge(merged_window, olds, target, state_windows[1:])
