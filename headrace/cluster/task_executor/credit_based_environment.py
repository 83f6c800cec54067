"""Creates the built-in shuffle environment from the TaskManager's context for shuffle services.

Source: Flink NettyShuffleServiceFactory.
"""

from headrace.network.environment import CreditBasedShuffleEnvironment
from headrace.network.shuffle_environment import ShuffleEnvironmentContext


def create_credit_based_environment(
    context: ShuffleEnvironmentContext,
    environment_class: type[CreditBasedShuffleEnvironment] = CreditBasedShuffleEnvironment,
) -> CreditBasedShuffleEnvironment:
    """Make the built-in environment, also for services that leave a part of their work to it."""
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
    )
