"""Loads a shuffle plug-in by its name: a factory makes the parts for the JobManager and for the TaskManagers.

The built-in plug-in is always known; others are found through the entry points of the group
`headrace.shuffle_services`, so that other packages can provide their own. A factory loads each part when it
makes it: the JobManager never loads the data plane.
Source: Flink ShuffleServiceFactory, ShuffleServiceLoader, NettyShuffleServiceFactory.
"""

from typing import TYPE_CHECKING, Any, Final, Protocol

from headrace.cluster.shuffle_master import (
    CreditBasedShuffleMaster,
    ShuffleMaster,
    ShuffleMasterContext,
)
from headrace.core.config import ConfigOption, Settings
from headrace.core.entry_points import entry_point_names, load_entry_point
from headrace.core.errors import ConfigurationError

if TYPE_CHECKING:
    from headrace.network.environment import CreditBasedShuffleEnvironment
    from headrace.network.shuffle_environment import ShuffleEnvironment, ShuffleEnvironmentContext


BUILT_IN: Final = "credit-based"
ENTRY_POINT_GROUP: Final = "headrace.shuffle_services"
SHUFFLE_SERVICE_FACTORY: Final = ConfigOption(
    "shuffle-service-factory.class", str, BUILT_IN,
    "The shuffle plug-in of a cluster, by the name of its entry point: `credit-based` keeps results on TaskManagers, "
    "`remote` keeps those of blocking exchanges in a separate process (see `shuffle-service.address`).",
)  # fmt: skip


class ShuffleServiceFactory(Protocol):
    """Makes the two parts of a shuffle plug-in, for the JobManager and for TaskManagers.

    The entry point names its class, which takes no arguments. Its module should import neither part, but import each
    in the method that makes it.
    """

    def create_shuffle_master(self, context: ShuffleMasterContext) -> ShuffleMaster:
        """Make the JobManager's part, without starting it. ConfigurationError if the settings are invalid."""
        ...

    def create_shuffle_environment(
        self, context: "ShuffleEnvironmentContext"
    ) -> "ShuffleEnvironment":
        """Make the part of one TaskManager, without starting it. ConfigurationError if the settings are invalid."""
        ...


class CreditBasedShuffleServiceFactory:
    """The built-in plug-in: TaskManagers keep their results, and send them to consumers that granted credit."""

    def create_shuffle_master(self, context: ShuffleMasterContext) -> ShuffleMaster:
        return CreditBasedShuffleMaster()

    def create_shuffle_environment(
        self, context: "ShuffleEnvironmentContext"
    ) -> "ShuffleEnvironment":
        return create_credit_based_environment(context)


def load_shuffle_service_factory(settings: Settings) -> ShuffleServiceFactory:
    """Make the factory that `shuffle-service-factory.class` names. ConfigurationError if it is unknown."""
    name = settings.get_option(SHUFFLE_SERVICE_FACTORY)
    refuse_unknown_shuffle_service(settings)
    if name == BUILT_IN:
        return CreditBasedShuffleServiceFactory()
    factory_class: Any = load_entry_point(ENTRY_POINT_GROUP, name)
    return factory_class()


def refuse_unknown_shuffle_service(settings: Settings) -> None:
    """Raise ConfigurationError, with the known names, for an unknown plug-in, before a cluster is started in vain."""
    name = settings.get_option(SHUFFLE_SERVICE_FACTORY)
    if name == BUILT_IN:
        return
    found = entry_point_names(ENTRY_POINT_GROUP)
    if name not in found:
        known = ", ".join(sorted({BUILT_IN, *found}))
        raise ConfigurationError(
            SHUFFLE_SERVICE_FACTORY.key,
            name,
            f"no such shuffle plug-in is installed; known names: {known}",
        )


def create_credit_based_environment(
    context: "ShuffleEnvironmentContext",
    environment_class: "type[CreditBasedShuffleEnvironment] | None" = None,
) -> "CreditBasedShuffleEnvironment":
    """Make the built-in environment, also for plug-ins that delegate part of their work to it."""
    if environment_class is None:
        from headrace.network.environment import CreditBasedShuffleEnvironment

        environment_class = CreditBasedShuffleEnvironment
    return environment_class(
        resource_id=context.resource_id,
        settings=context.settings,
        secret=context.secret,
        bind_host=context.bind_host,
        advertised_host=context.advertised_host,
        clock=context.clock,
        random=context.random,
        socket_directory=context.socket_directory,
        tls=context.tls,
        metrics=context.metrics,
        on_fatal_error=context.on_fatal_error,
    )
