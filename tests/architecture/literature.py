"""Classes of Flink that readers of its documentation, papers and code know, and how each is found here.

A name is found by file name where a file's words are all words of the name, and at least half of them:
`key_groups.py` for KeyGroupRangeAssignment, `mailbox.py` for MailboxProcessor. Otherwise the glossary leads to the
file.
"""

import re
from typing import Final

from tests.architecture.floor_plan import FACADES, PACKAGE, ROOT, source_files

NAMES: Final = (
    # runtime of a cluster
    "Dispatcher", "JobMaster", "ResourceManager", "TaskExecutor", "TaskManagerRunner", "MiniCluster", "SlotPool",
    "SlotManager", "SlotSharingGroup", "TaskSlotTable", "PartitionTracker", "ShuffleMaster", "BlobServer",
    "LeaderElection", "RpcEndpoint", "HeartbeatManager", "RestartBackoffTimeStrategy", "ExecutionFailureHandler",
    "ExecutionDeployer", "OperatorCoordinator", "SourceCoordinator", "OperatorCoordinatorHandler",
    # plans
    "StreamGraph", "StreamGraphGenerator", "JobGraph", "ExecutionGraph",
    # exchange
    "ResultPartition", "ResultSubpartition", "PipelinedSubpartition", "ResultPartitionManager", "RecordWriter",
    "ChannelSelector", "NetworkBufferPool", "LocalBufferPool", "BufferManager", "BufferDebloater", "SingleInputGate",
    "UnionInputGate", "LocalInputChannel", "RemoteInputChannel", "RecoveredInputChannel", "PartitionRequestListener",
    "CreditBasedSequenceNumberingViewReader", "ConnectionManager", "ShuffleEnvironment",
    # tasks
    "Task", "StreamTask", "MailboxProcessor", "OperatorChain", "StreamInputProcessor", "StatusWatermarkValve",
    "WindowOperator", "StreamOperator", "AsyncWaitOperator", "InternalTimerService",
    # checkpoints and state
    "CheckpointCoordinator", "PendingCheckpoint", "CompletedCheckpointStore", "StateAssignmentOperation",
    "RoundRobinOperatorStateRepartitioner", "CheckpointedInputGate", "CheckpointBarrierHandler",
    "SubtaskCheckpointCoordinator", "ChannelStateWriter", "KeyGroupRangeAssignment", "KeyedStateBackend",
    "OperatorStateBackend", "CopyOnWriteStateMap", "StateTtlConfig", "CheckpointStorage",
)  # fmt: skip
BY_FILE_NAME: Final = (
    "ResultPartition", "ResultSubpartition", "CreditBasedSequenceNumberingViewReader",
    "BufferManager", "CheckpointedInputGate", "SlotSharingGroup",
    "PendingCheckpoint", "KeyGroupRangeAssignment", "MailboxProcessor", "PartitionRequestListener", "ExecutionGraph",
    "CheckpointCoordinator", "RecordWriter", "SingleInputGate", "LocalBufferPool", "NetworkBufferPool",
    "OperatorChain", "StreamTask", "TaskSlotTable", "SlotPool", "Dispatcher", "ResourceManager", "JobMaster",
    "TaskExecutor",
)  # fmt: skip
"""Those that must be found without the glossary."""

_WORD: Final = re.compile(r"[A-Z][a-z0-9]*")
_GLOSSARY_ROW: Final = re.compile(r"^\| [^|]+ \| ([^|]+) \|(.*)$", re.MULTILINE)
_FILE: Final = re.compile(r"`((?:\w+/)+\w+\.py)`")


def files_named_like(name: str) -> list[str]:
    """Return the files whose words are words of the name, and at least half of them; the best first."""
    words = {word.lower() for word in _WORD.findall(name)}
    found: list[tuple[int, str]] = []
    for file in source_files():
        if file.relative_to(PACKAGE).parts[0] in FACADES:
            continue
        own = {word.rstrip("s") for word in file.stem.split("_")}
        if own <= {word.rstrip("s") for word in words} and 2 * len(own) >= len(words):
            found.append((-len(own), file.relative_to(PACKAGE).as_posix()))
    return [path for _, path in sorted(found)]


def files_in_the_glossary(name: str) -> list[str]:
    """Return the files of the glossary's rows that give the name as Flink's."""
    text = (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8")
    return [
        file
        for in_flink, rest in _GLOSSARY_ROW.findall(text)
        if re.search(rf"\b{name}\b", in_flink)
        for file in _FILE.findall(rest)
    ]
