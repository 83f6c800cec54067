"""FlameGraphSampler: takes stack samples of vertices while clients request them.

The first request for a vertex starts the sampling. A graph is renewed after the refresh interval, if it is requested
again, and dropped when nobody has requested it for a while. Source: Flink VertexThreadInfoTracker.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

from headrace.core.clock import Clock
from headrace.core.config import ConfigOption, Settings
from headrace.core.errors import HeadraceError
from headrace.core.ids import JobId, JobVertexId
from headrace.core.process.stack_sampler import StackSamples
from headrace.core.threads import spawn
from headrace.rest.handler_errors import HandlerError, UnavailableError

FLAME_GRAPH_ENABLED: Final = ConfigOption(
    "rest.flamegraph.enabled",
    bool,
    True,
    "Whether dashboards may request flame graphs. Samples are only taken on request.",
)
FLAME_GRAPH_REFRESH: Final = ConfigOption(
    "rest.flamegraph.refresh-interval",
    timedelta,
    timedelta(minutes=1),
    "Time after which a requested flame graph is renewed.",
)
FLAME_GRAPH_CLEANUP: Final = ConfigOption(
    "rest.flamegraph.cleanup-interval",
    timedelta,
    timedelta(minutes=10),
    "Time after which a flame graph that nobody requests is dropped.",
)
FLAME_GRAPH_SAMPLES: Final = ConfigOption(
    "rest.flamegraph.num-samples",
    int,
    100,
    "Samples of each subtask in one flame graph.",
    least=1,
)
FLAME_GRAPH_DELAY: Final = ConfigOption(
    "rest.flamegraph.delay-between-samples",
    timedelta,
    timedelta(milliseconds=50),
    "Time between two samples.",
    least=timedelta(milliseconds=1),
)
FLAME_GRAPH_DEPTH: Final = ConfigOption(
    "rest.flamegraph.stack-depth",
    int,
    100,
    "Maximum number of frames of a sampled stack.",
    least=1,
)
FLAME_GRAPH_OPTIONS: Final[tuple[ConfigOption[Any], ...]] = (
    FLAME_GRAPH_ENABLED,
    FLAME_GRAPH_REFRESH,
    FLAME_GRAPH_CLEANUP,
    FLAME_GRAPH_SAMPLES,
    FLAME_GRAPH_DELAY,
    FLAME_GRAPH_DEPTH,
)
"""All options of flame graphs, which are checked before a cluster starts."""
_LOG: Final = logging.getLogger(__name__)
_KEPT_MAX: Final = 100

Place = tuple[JobId, JobVertexId, int | None]
"""A vertex, or one of its subtasks."""


@dataclass
class _Graph:
    asked_ms: float
    taken_ms: float | None = None
    samples: StackSamples | None = None
    sampling: asyncio.Task[None] | None = None


class FlameGraphSampler:
    """Keeps the newest flame graph of each place. Used on one loop.

    `sample` takes stack samples: its arguments are a place, the number of samples, the delay between them in
    milliseconds, and the depth.
    """

    def __init__(
        self,
        settings: Settings,
        clock: Clock,
        sample: Callable[[Place, int, int, int], Coroutine[Any, Any, StackSamples]],
    ) -> None:
        self.is_enabled: Final = settings.get_option(FLAME_GRAPH_ENABLED)
        self._clock: Final = clock
        self._sample: Final = sample
        self._refresh_ms: Final = settings.duration_ms(FLAME_GRAPH_REFRESH)
        self._cleanup_ms: Final = settings.duration_ms(FLAME_GRAPH_CLEANUP)
        self._count: Final = settings.get_option(FLAME_GRAPH_SAMPLES)
        self._delay_ms: Final = int(settings.duration_ms(FLAME_GRAPH_DELAY))
        self._depth: Final = settings.get_option(FLAME_GRAPH_DEPTH)
        self._graphs: dict[Place, _Graph] = {}
        self._tasks: Final[set[asyncio.Task[Any]]] = set()

    def newest(self, place: Place) -> StackSamples | None:
        """Return the newest samples of a place, or None if there are none; start new ones if they are old."""
        now_ms = self._clock.monotonic_ms()
        self._drop_unasked(now_ms)
        graph = self._graphs.get(place)
        if graph is None:
            if len(self._graphs) >= _KEPT_MAX:
                raise UnavailableError(
                    f"flame graphs of {_KEPT_MAX} places are in use; try again when some are no longer requested"
                )
            graph = self._graphs[place] = _Graph(now_ms)
        graph.asked_ms = now_ms
        is_old = graph.taken_ms is None or graph.taken_ms + self._refresh_ms <= now_ms
        if is_old and graph.sampling is None:
            graph.sampling = spawn(
                self._take(place, graph), asyncio.get_running_loop(), "flame graph", self._tasks
            )
        return graph.samples

    async def _take(self, place: Place, graph: _Graph) -> None:
        try:
            graph.samples = await self._sample(place, self._count, self._delay_ms, self._depth)
        except (HeadraceError, HandlerError) as error:
            _LOG.warning("no flame graph of vertex %s could be taken: %s", place[1], error)
        finally:
            # Also after a failure: the next one is taken a refresh interval later, not with each request.
            graph.taken_ms = self._clock.monotonic_ms()
            graph.sampling = None

    def _drop_unasked(self, now_ms: float) -> None:
        for place, graph in list(self._graphs.items()):
            if graph.sampling is None and graph.asked_ms + self._cleanup_ms <= now_ms:
                del self._graphs[place]
