"""Options of high availability through Kubernetes. Keys and defaults are Flink's."""

from datetime import timedelta
from typing import Final

from headrace.core.config import ConfigOption

_P: Final = "high-availability.kubernetes.leader-election."
_LEAST: Final = timedelta(milliseconds=10)

KUBERNETES_CLUSTER_ID: Final = ConfigOption(
    "kubernetes.cluster-id", str, "",
    "Beginning of the names of the Lease and the ConfigMap of a cluster. Unset: high-availability.cluster-id.",
)  # fmt: skip
KUBERNETES_NAMESPACE: Final = ConfigOption(
    "kubernetes.namespace", str, "default", "Namespace of the Lease and the ConfigMap."
)
CONFIG_FILE: Final = ConfigOption(
    "kubernetes.config.file", str, "",
    "File that says how to reach the API server. Unset: the service account of the pod, or else ~/.kube/config.",
)  # fmt: skip
CONTEXT: Final = ConfigOption(
    "kubernetes.context", str, "", "Context of that file. Unset: its current one."
)
KUBERNETES_LEASE_DURATION: Final = ConfigOption(
    _P + "lease-duration", timedelta, timedelta(seconds=15),
    "Time for which a standby must have seen no renewal, by its own clock, before it takes the leadership over.",
    least=_LEAST,
)  # fmt: skip
KUBERNETES_RENEW_DEADLINE: Final = ConfigOption(
    _P + "renew-deadline", timedelta, timedelta(seconds=15),
    "Time after its last renewal at which a leader gives up; at the latest one retry period before the lease ends.",
    least=_LEAST,
)  # fmt: skip
KUBERNETES_RETRY_PERIOD: Final = ConfigOption(
    _P + "retry-period", timedelta, timedelta(seconds=5),
    "Time between two renewals of a leader, and between two looks of a standby; at most a third of the lease duration.",
    least=_LEAST,
)  # fmt: skip
