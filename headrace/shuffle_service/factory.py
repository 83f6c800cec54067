"""RemoteShuffleServiceFactory: `shuffle-service-factory.class: remote`."""

from headrace.cluster.shuffle.shuffle_master import ShuffleMaster, ShuffleMasterContext
from headrace.network.shuffle_environment import ShuffleEnvironment, ShuffleEnvironmentContext
from headrace.shuffle_service.remote_shuffle_environment import RemoteShuffleEnvironment
from headrace.shuffle_service.remote_shuffle_master import RemoteShuffleMaster


class RemoteShuffleServiceFactory:
    """See ShuffleServiceFactory: blocking results in a process of their own, all else built in."""

    def create_shuffle_master(self, context: ShuffleMasterContext) -> ShuffleMaster:
        """See ShuffleServiceFactory."""
        return RemoteShuffleMaster(context)

    def create_shuffle_environment(self, context: ShuffleEnvironmentContext) -> ShuffleEnvironment:
        """See ShuffleServiceFactory."""
        return RemoteShuffleEnvironment(context)
