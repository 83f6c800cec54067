"""Plain Python models of what programs of event streams give, and what settles results of STREAMING mode as they do."""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from tests.unit.task.batch.modelled_functions import END_MS, Event

Model = Callable[[list[Event], list[Event]], Iterable[Any]]
"""What a program gives for the events of its two streams."""


def as_they_are(found: list[Any]) -> list[Any]:
    return found


def last_of_key(found: list[Any]) -> list[Any]:
    """The last result of each key: a rolling result is the result so far."""
    return list({result[0]: result for result in found}.values())


def fullest_of_window(found: list[Any]) -> list[Any]:
    """The result of each window that counts the most: it fires again with every late record."""
    counts: dict[Any, int] = {}
    for *window, count in found:
        counts[tuple(window)] = max(count, counts.get(tuple(window), 0))
    return [(*window, count) for window, count in counts.items()]


def with_late_records(found: list[Any]) -> list[Any]:
    """The counts of windows with the records that came too late for them."""
    counts: Counter[tuple[int, ...]] = Counter()
    for name, *rest in found:
        key, time = rest[0], rest[1]
        counts[key, time // 10 * 10] += rest[2] if name == "window" else 1
    return [("window", *window, count) for window, count in counts.items()]


def counted(windows: Callable[[list[int]], Iterable[tuple[int, int]]]) -> Model:
    """The model of a window function: `windows` gives those of a key's times, one for each time in it."""

    def model(first: list[Event], _: list[Event]) -> Iterator[Any]:
        times: dict[int, list[int]] = defaultdict(list)
        for key, time in first:
            times[key].append(time)
        for key, own in times.items():
            for (start, end), count in Counter(windows(sorted(own))).items():
                yield key, start, end, count

    return model


def sessions(times: list[int]) -> Iterator[tuple[int, int]]:
    begun: list[int] = []
    for time in [*times, END_MS]:
        if begun and time - begun[-1] > 5:
            yield from [(begun[0], begun[-1] + 5)] * len(begun)
            begun = []
        begun.append(time)


def tumbling(times: list[int]) -> list[tuple[int, int]]:
    return [(time // 10 * 10, time // 10 * 10 + 10) for time in times]


def join_model(first: list[Event], second: list[Event]) -> Iterator[Any]:
    for left in first:
        for right in second:
            if left[0] == right[0] and -3 <= right[1] - left[1] <= 4:
                yield left, right


def window_join_model(first: list[Event], second: list[Event]) -> Iterator[Any]:
    for left in first:
        for right in second:
            if left[0] == right[0] and left[1] // 10 == right[1] // 10:
                yield left, right


def co_group_model(first: list[Event], second: list[Event]) -> Iterator[Any]:
    for place in {(key, time // 10) for key, time in first + second}:
        sides = [
            sorted(event for event in side if (event[0], event[1] // 10) == place)
            for side in (first, second)
        ]
        yield sides[0], sides[1]


def largest_model(first: list[Event], _: list[Event]) -> Iterator[Any]:
    for place in {(key, time // 10) for key, time in first}:
        yield from sorted(one for one in first if (one[0], one[1] // 10) == place)[-2:]


def sum_model(first: list[Event], _: list[Event]) -> list[Any]:
    return [
        (key, sum(time for other, time in first if other == key))
        for key in {key for key, _ in first}
    ]


def inventory_model(first: list[Event], _: list[Event]) -> Iterator[Any]:
    for wanted in {key for key, _ in first}:
        times = sorted(time for key, time in first if key == wanted)
        yield wanted, "all", times
        for ten in {time // 10 * 10 for time in times}:
            yield wanted, ten, "seen"


def latest_model(first: list[Event], second: list[Event]) -> list[Any]:
    return [
        (event, sum(key == event[0] and time <= event[1] for key, time in first))
        for event in second
    ]


def rules_model(first: list[Event], second: list[Event]) -> list[Any]:
    return [(one, sorted({key for key, _ in second})) for one in first]
