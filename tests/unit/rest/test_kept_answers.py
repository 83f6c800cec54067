"""KeptAnswers: values that are computed once per interval, however many ask."""

import asyncio

import pytest

from headrace.core.clock import ManualClock
from headrace.rest.kept_answers import KeptAnswers


class Computation:
    """Counts how often it runs; waits until it is let through."""

    def __init__(self) -> None:
        self.count = 0
        self.gate = asyncio.Event()
        self.error: Exception | None = None

    async def __call__(self) -> int:
        self.count += 1
        await self.gate.wait()
        if self.error is not None:
            raise self.error
        return self.count


def test_many_that_ask_at_once_wait_for_one_computation() -> None:
    async def scenario() -> None:
        answers, computation = KeptAnswers(ManualClock()), Computation()
        waiting = [asyncio.ensure_future(answers.get("jobs", 3000, computation)) for _ in range(10)]
        await asyncio.sleep(0)
        computation.gate.set()
        assert await asyncio.gather(*waiting) == [1] * 10
        assert computation.count == 1

    asyncio.run(scenario())


def test_a_value_is_computed_anew_when_the_interval_is_over() -> None:
    async def scenario() -> None:
        clock = ManualClock()
        answers, computation = KeptAnswers(clock), Computation()
        computation.gate.set()
        assert await answers.get("jobs", 3000, computation) == 1
        clock.advance_ms(2999)
        assert await answers.get("jobs", 3000, computation) == 1
        clock.advance_ms(1)
        assert await answers.get("jobs", 3000, computation) == 2
        assert await answers.get("others", 3000, computation) == 3

    asyncio.run(scenario())


def test_an_error_reaches_all_who_wait_and_is_not_kept() -> None:
    async def scenario() -> None:
        answers, computation = KeptAnswers(ManualClock()), Computation()
        computation.error = ValueError("no such job")
        computation.gate.set()
        for _ in range(2):
            with pytest.raises(ValueError, match="no such job"):
                await answers.get("job", 3000, computation)
        assert computation.count == 2

    asyncio.run(scenario())


def test_who_stops_waiting_stops_nobody_else() -> None:
    async def scenario() -> None:
        answers, computation = KeptAnswers(ManualClock()), Computation()
        first = asyncio.ensure_future(answers.get("jobs", 3000, computation))
        second = asyncio.ensure_future(answers.get("jobs", 3000, computation))
        await asyncio.sleep(0)
        first.cancel()
        await asyncio.sleep(0)
        computation.gate.set()
        assert await second == 1

    asyncio.run(scenario())


def test_an_answer_that_is_old_and_not_asked_for_is_let_go() -> None:
    async def scenario() -> None:
        clock = ManualClock()
        answers, computation = KeptAnswers(clock), Computation()
        computation.gate.set()
        for number in range(10):
            await answers.get(number, 3000, computation)
        assert len(answers) == 10
        clock.advance_ms(3000)
        await answers.get("newer", 3000, computation)
        assert len(answers) == 1

    asyncio.run(scenario())


def test_no_more_than_a_thousand_values_are_kept() -> None:
    async def scenario() -> None:
        answers, computation = KeptAnswers(ManualClock()), Computation()
        computation.gate.set()
        for number in range(1001):
            await answers.get(number, 3000, computation)
        assert await answers.get(0, 3000, computation) == 1002, "the oldest was forgotten"
        assert await answers.get(1000, 3000, computation) == 1001

    asyncio.run(scenario())
