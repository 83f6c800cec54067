"""RemoteShuffleServiceFactory: the factory for `shuffle-service-factory.class: remote`.

Each side is imported when it is created, as the JobManager does not need the data plane.
"""

from typing import TYPE_CHECKING

from headrace.cluster.shuffle_master import ShuffleMaster, ShuffleMasterContext

if TYPE_CHECKING:
    from headrace.network.shuffle_environment import ShuffleEnvironment, ShuffleEnvironmentContext


class RemoteShuffleServiceFactory:
    """Factory of the remote shuffle: a separate process stores blocking results; all else is built in."""

    def create_shuffle_master(self, context: ShuffleMasterContext) -> ShuffleMaster:
        from headrace.shuffle_service.remote_shuffle_master import RemoteShuffleMaster

        return RemoteShuffleMaster(context)

    def create_shuffle_environment(
        self, context: "ShuffleEnvironmentContext"
    ) -> "ShuffleEnvironment":
        from headrace.shuffle_service.remote_shuffle_environment import RemoteShuffleEnvironment

        return RemoteShuffleEnvironment(context)
