"""DispatcherRunner: one Dispatcher after another, for each leadership of this process and in place of one that fails.

    LEADING --leadership lost--> LEAVING --its JobMasters have ended--> STANDBY --leadership granted--> LEADING
    LEADING --the Dispatcher fails, which ends the leadership--> STANDBY, and the process may lead again at once

The next one is made when the one before has ended whole, and recovers the jobs from the store. Meanwhile whoever asks
is told who leads. TaskManagers and the ResourceManager of the process stay. Runs on the loop of the RpcService.
Source: Flink DefaultDispatcherRunner, SessionDispatcherLeaderProcess.
"""

import asyncio
import functools
import logging
from collections.abc import Callable
from enum import Enum
from typing import Final, Protocol

from headrace.cluster.dispatcher.dispatcher import Dispatcher
from headrace.cluster.high_availability.leader_election_service import (
    LeaderElectionService,
    Leadership,
    LeadershipLostError,
)
from headrace.cluster.leadership import tell_end
from headrace.cluster.replacements import Replacements
from headrace.core.config import ConfigOption
from headrace.gateways.dispatcher import DispatcherGateway
from headrace.gateways.errors import NotLeadingError
from headrace.rpc.errors import EndpointFailedError, EndpointStartError
from headrace.rpc.proxies import redirect, refuse
from headrace.rpc.service import RpcService

_LOG: Final = logging.getLogger(__name__)

DISPATCHER_REPLACEMENTS_MAX: Final = ConfigOption(
    "headrace.dispatcher.replacements",
    int,
    3,
    "Dispatchers that may fail within `headrace.resourcemanager.replacement-window` and be followed by another one in "
    "the same process, which goes on with all jobs from their last checkpoints. It needs high availability. The next "
    "one that fails ends the process, as does the first one with 0.",
    least=0,
)


class CreateDispatcher(Protocol):
    """Makes the Dispatcher of a leadership; None: the process has no rivals."""

    def __call__(
        self,
        leadership: Leadership | None,
        *,
        on_leaving: Callable[[], None],
        is_followed: Callable[[], bool],
    ) -> Dispatcher: ...


class _Phase(Enum):
    LEADING = "LEADING"
    LEAVING = "LEAVING"
    STANDBY = "STANDBY"
    OVER = "OVER"


class DispatcherRunner:
    """One per cluster. `election`: None where jobs end with their Dispatcher.

    `on_failed` hears of a failure that no other Dispatcher follows.
    """

    def __init__(
        self,
        rpc_service: RpcService,
        election: LeaderElectionService | None,
        create: CreateDispatcher,
        on_failed: Callable[[BaseException], None],
    ) -> None:
        self._rpc_service: Final = rpc_service
        self._election: Final = election
        self._create: Final = create
        self._on_failed: Final = on_failed
        settings, clock = rpc_service.settings, rpc_service.clock
        self._replacements: Final = Replacements(DISPATCHER_REPLACEMENTS_MAX, settings, clock)
        self._phase = _Phase.LEADING
        self._leadership = None if election is None else election.leadership
        self.dispatcher = self._create_dispatcher()
        """The one that leads, or led last."""
        self.gateway: Final = self.dispatcher.self_gateway(DispatcherGateway)
        """The way to whichever leads when it is called. NotLeadingError while none does."""
        tell_end(self.gateway, "Dispatcher")

    def start(self) -> None:
        """Begin to serve."""
        self._start()
        if self._election is not None:
            self._watch(self._election)

    def stop_following(self) -> None:
        """Let no other Dispatcher follow: the cluster ends, or has failed."""
        self._phase = _Phase.OVER

    def _create_dispatcher(self) -> Dispatcher:
        return self._create(
            self._leadership, on_leaving=self._refuse_calls, is_followed=self._may_replace
        )

    def _start(self) -> None:
        dispatcher = self.dispatcher
        dispatcher.termination.add_done_callback(functools.partial(self._ended, dispatcher))
        dispatcher.start()

    def _watch(self, election: LeaderElectionService) -> None:
        """Look for a loss and for a grant, each of which another thread notices."""
        if self._phase is _Phase.OVER:
            return
        if election.failure is not None:
            self._on_failed(election.failure)
        elif self._phase is _Phase.LEADING and self._is_lost:
            _LOG.warning("all jobs are left to the next leader of cluster '%s'", election.cluster)
            self._phase = _Phase.LEAVING
            self._refuse_calls()
            self.dispatcher.close_async()
        elif self._phase is _Phase.STANDBY and election.leadership is not self._leadership:
            self._leadership = election.leadership
            if self._is_lost:
                election.contend_again()
            else:
                self._phase = _Phase.LEADING
                self._follow()
        self._rpc_service.loop.call_later(election.retry_period_ms / 1000, self._watch, election)

    def _ended(self, dispatcher: Dispatcher, termination: asyncio.Future[None]) -> None:
        """A Dispatcher is gone, with its JobMasters."""
        if self._phase is _Phase.OVER:
            return
        cause = termination.exception() or RuntimeError("it was closed")
        failure = EndpointFailedError(dispatcher.address, cause)
        if self._leadership is None or self._election is None:
            self._on_failed(failure)
            return
        if not self._is_lost:
            if isinstance(cause, EndpointStartError) or not self._may_replace():
                self._on_failed(failure)
                return
            counted = self._replacements.count()
            _LOG.error(
                "%s; another one follows it, and goes on with all jobs: %s", failure, counted
            )
            # The number of its leadership tells apart what its tasks and the next one's have written.
            self._leadership.lose("its Dispatcher has failed")
        self._phase = _Phase.STANDBY
        self._election.contend_again()
        _LOG.warning("this process stands by: %s", self._election.leader_text)

    def _follow(self) -> None:
        self.dispatcher = dispatcher = self._create_dispatcher()
        # Calls wait there until it has recovered the jobs.
        redirect(self.gateway, dispatcher.address, dispatcher.fencing_token)
        self._start()

    def _may_replace(self) -> bool:
        has_store = self._leadership is not None
        return has_store and self._phase is _Phase.LEADING and self._replacements.are_left

    @property
    def _is_lost(self) -> bool:
        if self._leadership is None:
            return False
        try:
            self._leadership.validate()
        except LeadershipLostError:
            return True
        return False

    def _refuse_calls(self) -> None:
        refuse(self.gateway, self._refusal)

    def _refusal(self) -> NotLeadingError:
        assert self._election is not None, "jobs are left only where they are stored"
        if self._phase is _Phase.LEADING:
            return NotLeadingError("its Dispatcher has failed, and another one follows")
        return NotLeadingError(
            f"it has lost the leadership of cluster '{self._election.cluster}', and {self._election.leader_text}"
        )
