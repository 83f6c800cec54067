"""DispatcherRunner: runs a Dispatcher for each leadership of this process, and replaces one that fails.

    LEADING --the Dispatcher fails--> LEADING, with another Dispatcher for the same jobs
    LEADING --leadership lost--> LEAVING --its JobMasters have ended--> STANDBY --leadership granted--> LEADING

The jobs belong to a leadership: the first Dispatcher of the next one recovers them from the store. Meanwhile callers
are told the leader. TaskManagers and the ResourceManager of the process stay. Runs on the loop of the RpcService.
Source: Flink DefaultDispatcherRunner, SessionDispatcherLeaderProcess.
"""

import asyncio
import functools
import logging
from collections.abc import Callable
from enum import Enum
from typing import Final

from headrace.cluster.dispatcher.dispatcher import Dispatcher
from headrace.cluster.dispatcher.running_jobs import RunningJobs
from headrace.cluster.high_availability.leader_election_service import (
    LeaderElectionService,
    Leadership,
    LeadershipLostError,
)
from headrace.cluster.leader_replacements import LeaderReplacements
from headrace.cluster.leadership import tell_end
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
    "Number of Dispatchers that may fail within `headrace.resourcemanager.replacement-window` and be replaced in "
    "the same process, without effect on jobs. The next failure ends the process, as does the first one if 0.",
    least=0,
)


CreateJobs = Callable[[Leadership | None, Callable[[], None]], RunningJobs]
"""Makes the jobs of a leadership from the leadership, None without high availability, and their `on_leaving`."""

CreateDispatcher = Callable[[RunningJobs, Callable[[], bool]], Dispatcher]
"""Makes a Dispatcher from the jobs of the leadership and its `is_followed`."""


class _Phase(Enum):
    LEADING = "LEADING"
    LEAVING = "LEAVING"
    STANDBY = "STANDBY"
    OVER = "OVER"


class DispatcherRunner:
    """Runs the Dispatchers of a cluster. `election` is None if jobs end with their process.

    `on_failed` is called with a failure after which no other Dispatcher follows.
    """

    def __init__(
        self,
        rpc_service: RpcService,
        election: LeaderElectionService | None,
        create_jobs: CreateJobs,
        create_dispatcher: CreateDispatcher,
        on_failed: Callable[[BaseException], None],
    ) -> None:
        self._rpc_service: Final = rpc_service
        self._election: Final = election
        self._create_jobs: Final = create_jobs
        self._create_dispatcher: Final = create_dispatcher
        self._on_failed: Final = on_failed
        settings, clock = rpc_service.settings, rpc_service.clock
        self._replacements: Final = LeaderReplacements(DISPATCHER_REPLACEMENTS_MAX, settings, clock)
        self._phase = _Phase.LEADING
        self._leadership = None if election is None else election.leadership
        self.jobs = create_jobs(self._leadership, self._refuse_calls)
        """Jobs of the leadership that this process has, or had last."""
        self.dispatcher = create_dispatcher(self.jobs, self._may_replace)
        """Dispatcher that leads, or led last."""
        self.gateway: Final = self.dispatcher.self_gateway(DispatcherGateway)
        """Gateway to the Dispatcher that leads at the time of the call. NotLeadingError while none leads."""
        tell_end(self.gateway, "Dispatcher")

    def start(self) -> None:
        """Start the first Dispatcher and watch the leadership."""
        self._start()
        if self._election is not None:
            self._watch(self._election)

    def stop_following(self) -> None:
        """Prevent further Dispatchers, because the cluster ends or has failed."""
        self._phase = _Phase.OVER

    async def close(self) -> None:
        """End all jobs, or leave them to the next leader; then close the Dispatcher, which answers until then."""
        self.stop_following()
        await self.jobs.close()
        await self.dispatcher.close()

    def _start(self) -> None:
        dispatcher = self.dispatcher
        dispatcher.termination.add_done_callback(functools.partial(self._ended, dispatcher))
        dispatcher.start()

    def _watch(self, election: LeaderElectionService) -> None:
        """Watch for a loss or a grant of the leadership, which another thread notices."""
        if self._phase is _Phase.OVER:
            return
        if election.failure is not None:
            name = f"leader election of cluster '{election.cluster}'"
            self._on_failed(EndpointFailedError(name, election.failure))
        elif self._phase is _Phase.LEADING and self._is_lost:
            self._begin_to_leave(election)
        elif self._phase is _Phase.STANDBY and election.leadership is not self._leadership:
            self._leadership = election.leadership
            if self._is_lost:
                election.contend_again()
            else:
                self._phase = _Phase.LEADING
                self.jobs = self._create_jobs(self._leadership, self._refuse_calls)
                self._follow()
        self._rpc_service.loop.call_later(election.retry_period_ms / 1000, self._watch, election)

    def _begin_to_leave(self, election: LeaderElectionService) -> None:
        _LOG.warning("all jobs are left to the next leader of cluster '%s'", election.cluster)
        self._phase = _Phase.LEAVING
        self._refuse_calls()
        leaving = self._rpc_service.spawn(self._leave(election), "leave all jobs")
        leaving.add_done_callback(self._left)

    async def _leave(self, election: LeaderElectionService) -> None:
        """Become a standby once everything of the leadership has ended."""
        await self.jobs.close()
        await asyncio.wait([self.dispatcher.close_async()])
        if self._phase is not _Phase.OVER:
            self._phase = _Phase.STANDBY
            election.contend_again()
            _LOG.warning("this process is a standby: %s", election.leader_text)

    def _left(self, leaving: asyncio.Task[None]) -> None:
        error = None if leaving.cancelled() else leaving.exception()
        if error is not None:
            self._on_failed(error)

    def _ended(self, dispatcher: Dispatcher, termination: asyncio.Future[None]) -> None:
        """Handle the end of a Dispatcher."""
        if self._phase is not _Phase.LEADING:
            return
        cause = termination.exception() or RuntimeError("it was closed")
        failure = EndpointFailedError(dispatcher.address, cause)
        if self._election is not None and self._is_lost:
            self._begin_to_leave(self._election)
        elif isinstance(cause, EndpointStartError) or not self._may_replace():
            self._on_failed(failure)
        else:
            counted = self._replacements.count()
            _LOG.error("%s; another one replaces it, and all jobs go on: %s", failure, counted)
            self._follow()

    def _follow(self) -> None:
        dispatcher = self._create_dispatcher(self.jobs, self._may_replace)
        self.dispatcher = dispatcher
        # Calls wait at the new Dispatcher until it has recovered the jobs.
        redirect(self.gateway, dispatcher.address, dispatcher.fencing_token)
        self._start()

    def _may_replace(self) -> bool:
        return self._phase is _Phase.LEADING and self._replacements.are_left

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
        assert self._election is not None, "jobs are only left to another leader if they are stored"
        return NotLeadingError(
            f"it has lost the leadership of cluster '{self._election.cluster}', and {self._election.leader_text}"
        )
