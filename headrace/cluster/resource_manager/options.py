"""Options of the ResourceManager, with Flink's keys and defaults if the meaning is the same."""

import enum
from datetime import timedelta
from typing import Final

from headrace.core.config import ConfigOption, SizeBytes


class TaskManagerLoadBalanceMode(enum.Enum):
    """Strategies for choosing among TaskManagers with free slots."""

    NONE = "NONE"
    SLOTS = "SLOTS"


LOAD_BALANCE_MODE: Final = ConfigOption(
    "taskmanager.load-balance.mode",
    str,
    TaskManagerLoadBalanceMode.NONE.value,
    "NONE fills one TaskManager after the other, so that others can be released; SLOTS chooses the least used "
    "one, so that work is spread over all registered ones.",
)
FINE_GRAINED: Final = ConfigOption(
    "cluster.fine-grained-resource-management.enabled",
    bool,
    True,
    "Whether slot sharing groups with resources get slots of exactly that size. If not, all slots "
    "of a TaskManager are equal, and such a group uses those that are large enough.",
)
SLOTS_MAX: Final = ConfigOption(
    "slotmanager.number-of-slots.max",
    int,
    2_147_483_647,
    "Largest number of slots of the cluster, whatever room its host has; no more TaskManagers are requested.",
    least=1,
)
REDUNDANT_TASK_MANAGERS: Final = ConfigOption(
    "slotmanager.redundant-taskmanager-num",
    int,
    0,
    "Number of idle TaskManagers kept while a job runs, which can replace a lost one without waiting for a "
    "new one's start. No effect if the number of TaskManagers is fixed.",
    least=0,
)
FIXED_POOL_SIZE: Final = ConfigOption(
    "headrace.taskmanager.fixed-pool.size",
    int,
    0,
    "Number of TaskManagers that are started at once and kept; 0 starts and stops them as jobs need them.",
)
TASK_MANAGER_TIMEOUT: Final = ConfigOption(
    "resourcemanager.taskmanager-timeout",
    timedelta,
    timedelta(seconds=30),
    "Time after which a TaskManager without a job is stopped, unless their number is fixed.",
)
TASK_MANAGER_REGISTRATION_TIMEOUT: Final = ConfigOption(
    "resourcemanager.taskmanager-registration.timeout",
    timedelta,
    timedelta(minutes=5),
    "Time after which a worker that was started and has not registered is replaced.",
)
PREVIOUS_WORKER_RECOVERY_TIMEOUT: Final = ConfigOption(
    "resourcemanager.previous-worker.recovery.timeout",
    timedelta,
    timedelta(seconds=5),
    "Time for which a new ResourceManager waits for the TaskManagers of its predecessor to register again, "
    "before it gives slots to jobs and requests more TaskManagers. Flink's default is 0.",
)
REPLACEMENTS_MAX: Final = ConfigOption(
    "headrace.resourcemanager.replacements",
    int,
    3,
    "Number of ResourceManagers that may fail within `headrace.resourcemanager.replacement-window` and be replaced "
    "in the same process, while all tasks go on. The next failure ends the cluster; with 0 the first one does.",
    least=0,
)
START_WORKER_MAX_FAILURE_RATE: Final = ConfigOption(
    "resourcemanager.start-worker.max-failure-rate",
    float,
    10.0,
    "Number of workers that may fail to start per minute before requests pause.",
)
START_WORKER_RETRY_INTERVAL: Final = ConfigOption(
    "resourcemanager.start-worker.retry-interval",
    timedelta,
    timedelta(seconds=3),
    "Time for which requests pause after too many workers failed to start.",
)
ENDED_TASK_MANAGERS_MAX: Final = ConfigOption(
    "headrace.resourcemanager.ended-task-managers",
    int,
    100,
    "TaskManagers that have ended whose log files are kept; files of those that ended before are deleted.",
)
LOG_COPY_SIZE: Final = ConfigOption(
    "headrace.logs.copy-size",
    SizeBytes,
    SizeBytes(2 << 20),
    "Bytes of log and output of each TaskManager on another host that the driver keeps, so that REST shows them after "
    "its end: the newest ones written before its last heartbeat. 0 keeps none: they are then only on that host.",
)
DECOMMISSION_GRACE: Final = ConfigOption(
    "headrace.decommission.grace",
    timedelta,
    timedelta(seconds=20),
    "Time for which jobs may go on in a TaskManager whose Spark executor is decommissioned, or whose process gets "
    "SIGTERM, until they have slots elsewhere and a checkpoint to restart from. It must be less than the notice that "
    "the host gives.",
)
JOB_TIMEOUT: Final = ConfigOption(
    "resourcemanager.job.timeout",
    timedelta,
    timedelta(minutes=5),
    "Time after which the slots and incomplete cached results of a job without a JobMaster are released.",
)
EXCLUSIVE_TASK_MANAGERS: Final = ConfigOption(
    "headrace.resourcemanager.exclusive-task-managers",
    bool,
    False,
    "Whether each TaskManager serves the slots of only one job and ends with it, so that no job sees the modules, "
    "the memory or the end of another job's process. 'headrace cluster start' sets it; in Flink they are shared.",
)
WIDE_JOB_PATIENCE: Final = ConfigOption(
    "headrace.session.wide-job-patience",
    timedelta,
    timedelta(minutes=1),
    "Time for which a job that needs more slots than are free lets narrower jobs behind it go first. After that it "
    "gets the slots that others free, and jobs behind it that have none yet wait for it, until it has waited for ten "
    "times as long: perhaps the running jobs never end. 0 always lets them go first.",
)
BLOCKLIST_LOSSES: Final = ConfigOption(
    "headrace.blocklist.lost-task-managers",
    int,
    0,
    "Number of TaskManagers lost within `headrace.blocklist.window` that blocks their host: its slots are then used "
    "only if no other host has any. If TaskManagers start on demand and one starts there, a job requests others, as "
    "many as it needs slots, at least 3, while there is room for them, and uses its slots after 20 s. 0 blocks no "
    "host.",
    least=0,
)
BLOCKLIST_WINDOW: Final = ConfigOption(
    "headrace.blocklist.window",
    timedelta,
    timedelta(minutes=10),
    "Time within which lost TaskManagers of a host are counted.",
)
BLOCKLIST_DURATION: Final = ConfigOption(
    "headrace.blocklist.duration",
    timedelta,
    timedelta(hours=1),
    "Time for which a host is blocked.",
)
