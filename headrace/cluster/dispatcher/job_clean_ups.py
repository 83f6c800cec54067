"""JobCleanUps: deletes the files of ended jobs, and retries while the storage refuses.

    add ──► attempt, of a few jobs at a time ──► clean
              ▲         │ the storage refuses
              └──pause──┴──no attempts left, too many jobs wait, the cluster ends──► given up and logged

A job between attempts is only an entry in memory; one timer starts the next attempt. Pauses and attempts follow
`cleanup-strategy`. Runs on the loop of the RpcService, which is the Dispatcher's main thread.
Source: Flink CleanupOptions, CleanupRetryStrategyFactory, DefaultResourceCleaner.
"""

import asyncio
import functools
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from headrace.cluster.high_availability.leader_election_service import LeadershipLostError
from headrace.cluster.job_master.checkpointing.store.checkpoint_store import CheckpointsLeft
from headrace.cluster.job_master.failover.restart_strategies import (
    ExponentialDelayRestart,
    FixedDelayRestart,
    NoRestart,
    RestartStrategy,
)
from headrace.core.clock import Cancellable
from headrace.core.config import ConfigOption, Settings
from headrace.core.ids import JobId
from headrace.core.randomness import SeededRandom
from headrace.rpc.service import RpcService

_LOG: Final = logging.getLogger(__name__)

CLEANUP_STRATEGY: Final = ConfigOption(
    "cleanup-strategy.type",
    str,
    "exponential-delay",
    "Retries if the storage does not delete the files of an ended job: none, fixed-delay or exponential-delay. "
    "Files left after the last attempt are listed in the log; the next leader or an operator must delete them.",
    deprecated_keys=("cleanup-strategy",),
    choices=("none", "fixed-delay", "exponential-delay"),
    synonyms=("off", "disable", "fixeddelay", "exponentialdelay"),
)
CLEANUP_FIXED_ATTEMPTS: Final = ConfigOption(
    "cleanup-strategy.fixed-delay.attempts",
    int,
    2**31 - 1,
    "Number of further attempts to delete the files of an ended job.",
)
CLEANUP_FIXED_DELAY: Final = ConfigOption(
    "cleanup-strategy.fixed-delay.delay",
    timedelta,
    timedelta(minutes=1),
    "Pause before a further attempt.",
    least=timedelta(milliseconds=1),
)
CLEANUP_EXPONENTIAL_ATTEMPTS: Final = ConfigOption(
    "cleanup-strategy.exponential-delay.attempts",
    int,
    2**31 - 1,
    "Number of further attempts to delete the files of an ended job.",
)
CLEANUP_EXPONENTIAL_INITIAL: Final = ConfigOption(
    "cleanup-strategy.exponential-delay.initial-backoff",
    timedelta,
    timedelta(seconds=1),
    "Pause before the first further attempt; each later one is twice as long.",
    least=timedelta(milliseconds=1),
)
CLEANUP_EXPONENTIAL_MAX: Final = ConfigOption(
    "cleanup-strategy.exponential-delay.max-backoff",
    timedelta,
    timedelta(hours=1),
    "Longest pause before a further attempt.",
    least=timedelta(milliseconds=1),
)

ATTEMPTS_AT_ONCE_MAX: Final = 8
"""Most jobs whose files are deleted at the same time; each takes a task and a thread."""
UNCLEAN_MAX: Final = 1_000
"""Most ended jobs that wait for further attempts; beyond it, the first one is given up."""
TELL_AFTER_MS: Final = 30_000.0
"""Time in ms for which the storage may refuse before a warning is logged."""
_NAMES_MAX: Final = 10
_NOTHING: Final = CheckpointsLeft()


@dataclass(eq=False)
class _CleanUp:
    job_id: JobId
    attempt: Callable[[], Awaitable[CheckpointsLeft]]
    strategy: RestartStrategy
    since_ms: float
    due_ms: float
    left: CheckpointsLeft = _NOTHING
    task: asyncio.Task[CheckpointsLeft] | None = None


class JobCleanUps:
    """Clean-ups of one leadership. `has_successors`: a later leader does what this one cannot."""

    def __init__(self, rpc_service: RpcService, *, has_successors: bool) -> None:
        self._rpc_service: Final = rpc_service
        self._has_successors: Final = has_successors
        self._new_strategy: Final = cleanup_strategies(rpc_service.settings, rpc_service.random)
        # In the order in which the jobs ended.
        self._unclean: Final[dict[JobId, _CleanUp]] = {}
        self._timer: Cancellable | None = None
        self._is_told = False
        self._finished: asyncio.Future[None] | None = None

    @property
    def unclean_count(self) -> int:
        """Number of ended jobs with files left, as far as is known."""
        return len(self._unclean)

    def add(
        self,
        job_id: JobId,
        attempt: Callable[[], Awaitable[CheckpointsLeft]],
        left: CheckpointsLeft = _NOTHING,
    ) -> None:
        """Clean up after a job.

        `attempt` tries once and returns what is left; `left` is the rest of an earlier attempt.
        """
        now_ms = self._now_ms
        clean_up = _CleanUp(job_id, attempt, self._new_strategy(), now_ms, now_ms, left)
        self._unclean[job_id] = clean_up
        if left.not_deleted and self._finished is None:
            self._refused(clean_up, left)
        self._go_on()

    def finish(self) -> asyncio.Future[None]:
        """Start a last attempt for every job, including later ones.

        Return a future that ends after the last attempt.
        """
        if self._finished is None:
            self._finished = self._rpc_service.loop.create_future()
            for clean_up in self._unclean.values():
                clean_up.due_ms = min(clean_up.due_ms, self._now_ms)
            self._go_on()
        return self._finished

    def close(self) -> None:
        """Stop all attempts, and log what is left."""
        self._stop_timer()
        for clean_up in tuple(self._unclean.values()):
            if clean_up.left.not_deleted:
                self._give_up(clean_up, "the cluster ends")
            elif clean_up.task is not None:
                clean_up.task.cancel()
        self._unclean.clear()

    def _go_on(self) -> None:
        """Start the attempts that are due, and schedule the next ones."""
        self._stop_timer()
        waiting = [one for one in self._unclean.values() if one.task is None]
        waiting.sort(key=lambda one: one.due_ms)
        room = ATTEMPTS_AT_ONCE_MAX - (len(self._unclean) - len(waiting))
        for clean_up in waiting[: max(0, room)]:
            pause_ms = clean_up.due_ms - self._now_ms
            if pause_ms > 0:
                # Never a fraction of a nanosecond, which a clock may not show.
                self._timer = self._rpc_service.schedule(max(1.0, pause_ms), self._go_on)
                break
            clean_up.task = self._rpc_service.spawn(
                _run(clean_up.attempt), f"clean up job {clean_up.job_id}"
            )
            clean_up.task.add_done_callback(functools.partial(self._attempted, clean_up))
        if self._finished is not None and not self._unclean and not self._finished.done():
            self._finished.set_result(None)

    def _attempted(self, clean_up: _CleanUp, attempt: asyncio.Task[CheckpointsLeft]) -> None:
        clean_up.task = None
        is_given_up = self._unclean.get(clean_up.job_id) is not clean_up
        if attempt.cancelled() and not is_given_up:
            return  # the process ends, and no new work may start
        error = None if attempt.cancelled() else attempt.exception()
        if is_given_up:
            _LOG.debug("the clean-up of job %s was given up meanwhile", clean_up.job_id)
        elif error is None and attempt.result().not_deleted:
            self._refused(clean_up, attempt.result())
        else:
            del self._unclean[clean_up.job_id]
            if isinstance(error, LeadershipLostError):
                _LOG.info(
                    "the clean-up of job %s, which has ended, is left to the next leader",
                    clean_up.job_id,
                )
            elif error is not None:
                self._rpc_service.fatal_error(error)
            elif self._is_told and not self._unclean:
                self._is_told = False
                _LOG.warning(
                    "the storage deletes files again: all files of ended jobs are deleted, except those given up"
                )
        self._go_on()

    def _refused(self, clean_up: _CleanUp, left: CheckpointsLeft) -> None:
        clean_up.left = left
        if self._finished is not None:
            self._give_up(clean_up, "the cluster ends")
            return
        pause_ms = clean_up.strategy.failure(self._now_ms)
        if pause_ms is None:
            self._give_up(clean_up, f"{CLEANUP_STRATEGY.key} allows no further attempt")
            return
        clean_up.due_ms = self._now_ms + pause_ms
        refused = [one for one in self._unclean.values() if one.left.not_deleted]
        if len(refused) > UNCLEAN_MAX:
            self._give_up(refused[0], f"more than {UNCLEAN_MAX} ended jobs wait to be cleaned up")
        if not self._is_told and self._now_ms - clean_up.since_ms >= TELL_AFTER_MS:
            self._is_told = True
            _LOG.warning(
                "the storage does not delete the files of %d ended job(s), for example of job %s: %s. The error is: "
                "%s. It is retried as set by %s, next in %g s, without further messages until it is done or given "
                "up: permit this process to delete there, or delete the files manually",
                len(self._unclean),
                clean_up.job_id,
                _named(left),
                left.cause,
                CLEANUP_STRATEGY.key,
                pause_ms / 1000,
            )

    def _give_up(self, clean_up: _CleanUp, why: str) -> None:
        del self._unclean[clean_up.job_id]
        if clean_up.task is not None:
            clean_up.task.cancel()
        _LOG.error(
            "job %s has ended, but the storage did not delete its obsolete files: %s. The error was: %s. %s: %s",
            clean_up.job_id,
            _named(clean_up.left),
            clean_up.left.cause,
            f"{why[0].upper()}{why[1:]}",
            "the next leader tries again, or delete them manually when the storage permits it"
            if self._has_successors
            else "delete them manually when the storage permits it, as there is no further attempt",
        )

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    @property
    def _now_ms(self) -> float:
        return self._rpc_service.clock.monotonic_ms()


async def _run(attempt: Callable[[], Awaitable[CheckpointsLeft]]) -> CheckpointsLeft:
    return await attempt()


def cleanup_strategies(settings: Settings, random: SeededRandom) -> Callable[[], RestartStrategy]:
    """Return a function that makes the retry strategy of one job's clean-up.

    ConfigurationError if the options are invalid.
    """
    fixed_attempts = settings.get_option(CLEANUP_FIXED_ATTEMPTS)
    fixed_delay_ms = settings.duration_ms(CLEANUP_FIXED_DELAY)
    attempts = settings.get_option(CLEANUP_EXPONENTIAL_ATTEMPTS)
    initial_ms = settings.duration_ms(CLEANUP_EXPONENTIAL_INITIAL)
    max_ms = settings.duration_ms(CLEANUP_EXPONENTIAL_MAX)
    match settings.get_option(CLEANUP_STRATEGY):
        case "none" | "off" | "disable":
            return NoRestart
        case "fixed-delay" | "fixeddelay":
            return lambda: FixedDelayRestart(fixed_attempts, fixed_delay_ms)
        case _:  # exponential-delay: the option has no other value
            return lambda: ExponentialDelayRestart(
                initial_ms=initial_ms,
                max_ms=max_ms,
                multiplier=2.0,
                reset_after_ms=float("inf"),
                jitter_factor=0.0,
                max_attempts=attempts,
                random=random,
            )


def _named(left: CheckpointsLeft) -> str:
    more = len(left.not_deleted) - _NAMES_MAX
    return ", ".join(left.not_deleted[:_NAMES_MAX]) + (f" and {more} more" if more > 0 else "")
