"""Options of the control plane's calls, registrations and heartbeats. Keys and defaults are Flink's."""

from datetime import timedelta
from typing import Final

from headrace.core.config import ConfigOption, SizeBytes

ASK_TIMEOUT: Final = ConfigOption(
    "pekko.ask.timeout",
    timedelta,
    timedelta(seconds=10),
    "How long a call waits for its answer unless the caller sets another timeout.",
)
LOOKUP_TIMEOUT: Final = ConfigOption(
    "pekko.lookup.timeout",
    timedelta,
    timedelta(seconds=10),
    "How long connecting to an endpoint may take, including the opening of the TCP connection.",
)
TCP_TIMEOUT: Final = ConfigOption(
    "pekko.tcp.timeout",
    timedelta,
    timedelta(seconds=20),
    "How long opening a TCP connection may take, and how long the authentication of a peer may take.",
)
FRAME_SIZE: Final = ConfigOption(
    "pekko.framesize",
    SizeBytes,
    SizeBytes(10485760),
    "Largest message between two processes. A larger request is refused at the sender, a larger "
    "reply is answered with an error; both name this option.",
)
THROUGHPUT: Final = ConfigOption(
    "pekko.throughput",
    int,
    15,
    "Messages that an endpoint handles before others on the same loop have their turn.",
)
FORCE_INVOCATION_SERIALIZATION: Final = ConfigOption(
    "pekko.rpc.force-invocation-serialization",
    bool,
    False,
    "Encode and decode also the calls within one process, as tests do to find messages that cannot be encoded.",
)
MAILBOX_CAPACITY: Final = ConfigOption(
    "headrace.rpc.mailbox-capacity",
    int,
    100_000,
    "How many calls may wait at one endpoint; more are refused with an error.",
)
SEND_BUFFER_SIZE: Final = ConfigOption(
    "headrace.rpc.send-buffer-size",
    SizeBytes,
    SizeBytes(64 << 20),
    "How many unsent bytes one connection may hold; past this the peer counts as stuck and the "
    "connection is dropped.",
)
SLOW_HANDLER_THRESHOLD: Final = ConfigOption(
    "headrace.rpc.slow-handler-threshold",
    timedelta,
    timedelta(seconds=1),
    "A handler that holds the main thread for longer is logged with its name.",
)
SERVICES_SHUTDOWN_TIMEOUT: Final = ConfigOption(
    "cluster.services.shutdown-timeout",
    timedelta,
    timedelta(seconds=30),
    "How long the tasks of an endpoint may take to end once the endpoint is closed.",
)

# A JobManager hands its own address to its TaskManagers, so no fixed port is needed for them to find it;
# two applications on one host would only collide on one.
JOB_MANAGER_RPC_PORT: Final = ConfigOption(
    "jobmanager.rpc.port",
    str,
    "0",
    "Port of the JobManager's calls: a port, a range '50100-50200' or a list of both; 0 for any.",
)
TASK_MANAGER_RPC_PORT: Final = ConfigOption(
    "taskmanager.rpc.port",
    str,
    "0",
    "Port of a TaskManager's calls: a port, a range '50100-50200' or a list of both; 0 for any.",
)

HEARTBEAT_INTERVAL: Final = ConfigOption(
    "heartbeat.interval",
    timedelta,
    timedelta(seconds=10),
    "Time between two heartbeats.",
)
HEARTBEAT_TIMEOUT: Final = ConfigOption(
    "heartbeat.timeout",
    timedelta,
    timedelta(seconds=50),
    "Time without a sign of life after which a peer counts as lost, on either side.",
)
HELD_LOCK_TIMEOUT: Final = ConfigOption(
    "headrace.heartbeat.held-lock-timeout",
    timedelta,
    timedelta(minutes=5),
    "How long a function's C code may hold the interpreter lock of a TaskManager, which cannot answer meanwhile, "
    "until the TaskManager counts as lost. A process beside each TaskManager tells which function it is; it begins "
    "when that has "
    "run for two fifths of 'heartbeat.timeout', and the stacks are read, by faulthandler without the lock, when no "
    "Python has run for as long: in a process which only got no processor for that time, this may end in a crash. "
    "0: there is none, and what is silent for 'heartbeat.timeout' is lost.",
)
HEARTBEAT_RPC_FAILURE_THRESHOLD: Final = ConfigOption(
    "heartbeat.rpc-failure-threshold",
    int,
    2,
    "How many heartbeats in a row must find the peer unreachable until it counts as lost; -1 to "
    "rely on the timeout alone.",
    least=-1,
)

REGISTRATION_INITIAL_TIMEOUT: Final = ConfigOption(
    "cluster.registration.initial-timeout",
    timedelta,
    timedelta(milliseconds=100),
    "Timeout of the first attempt to register; it doubles with every attempt that times out.",
)
REGISTRATION_MAX_TIMEOUT: Final = ConfigOption(
    "cluster.registration.max-timeout",
    timedelta,
    timedelta(seconds=30),
    "Largest timeout of an attempt to register.",
)
REGISTRATION_ERROR_DELAY: Final = ConfigOption(
    "cluster.registration.error-delay",
    timedelta,
    timedelta(seconds=10),
    "Pause after a registration that failed with an error, or a target that could not be reached.",
)
REGISTRATION_REFUSED_DELAY: Final = ConfigOption(
    "cluster.registration.refused-registration-delay",
    timedelta,
    timedelta(seconds=30),
    "Pause after a registration that was refused for now.",
)
