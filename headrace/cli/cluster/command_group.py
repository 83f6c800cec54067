"""The group `headrace cluster`."""

from typing import Final

from headrace.cli.command_table import CommandTable, Entry

_COMMANDS: Final = {
    "info": Entry("headrace.cli.cluster.cluster_info:cluster_info", "Show a cluster."),
    "list": Entry("headrace.cli.cluster.list_clusters:list_clusters", "List the clusters of this machine."),
    "start": Entry("headrace.cli.cluster.start_cluster:start_cluster", "Start a cluster that takes jobs of clients."),
    "stop": Entry("headrace.cli.cluster.stop_cluster:stop_cluster", "Stop a cluster with its jobs."),
}  # fmt: skip
_HELP: Final = """\
Clusters that stay: a session takes jobs of any client until it is stopped.

\b
Try it:
  headrace cluster start                          on this machine
  headrace cluster start --name nightly --master spark://host:7077 -D taskmanager.numberOfTaskSlots=2
  headrace cluster list                           clusters of this machine, and of programs that run
  headrace cluster info nightly
  headrace cluster stop nightly                   its jobs are cancelled; their checkpoints stay
"""

cluster = CommandTable("cluster", table=_COMMANDS, help=_HELP)
"""The group of commands."""
