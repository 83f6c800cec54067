"""KubernetesClient: reads, creates and replaces objects of one cluster; a write requires the version that was read.

    Lease        <cluster id>-leader       its `leaseTransitions` are the epoch, an annotation is the sealed record
    ConfigMap    <cluster id>-job-graphs   pointers to stored job graphs; an annotation is the epoch of the last writer

All calls block, each for a bounded time, and none is retried here. Source: Flink FlinkKubeClient.
"""

import re
from collections.abc import Callable
from datetime import timedelta
from typing import Any, Final, TypeVar

from headrace.checkpoint.errors import CheckpointStorageError
from headrace.core.config import ConfigOption, Settings
from headrace.core.errors import ConfigurationError, HostError

T = TypeVar("T")

_NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9]{0,43}[a-z0-9])?")
_NOT_FOUND: Final = 404
_CONFLICT: Final = 409
_REFUSED: Final = (401, 403)
_REMEDY: Final = "check that the API server can be reached"
_P: Final = "high-availability.kubernetes.leader-election."
_LEAST: Final = timedelta(milliseconds=10)

KUBERNETES_CLUSTER_ID: Final = ConfigOption(
    "kubernetes.cluster-id", str, "",
    "Prefix of the names of the Lease and the ConfigMap of a cluster. Unset: high-availability.cluster-id.",
)  # fmt: skip
KUBERNETES_NAMESPACE: Final = ConfigOption(
    "kubernetes.namespace", str, "default", "Namespace of the Lease and the ConfigMap."
)
CONFIG_FILE: Final = ConfigOption(
    "kubernetes.config.file", str, "",
    "File with the address and credentials of the API server. Unset: the service account of the pod, or else "
    "~/.kube/config.",
)  # fmt: skip
CONTEXT: Final = ConfigOption(
    "kubernetes.context", str, "", "Context of that file. Unset: its current one."
)
KUBERNETES_LEASE_DURATION: Final = ConfigOption(
    _P + "lease-duration", timedelta, timedelta(seconds=15),
    "Time without a renewal, by a standby's own clock, after which it takes over the leadership.",
    least=_LEAST,
)  # fmt: skip
KUBERNETES_RENEW_DEADLINE: Final = ConfigOption(
    _P + "renew-deadline", timedelta, timedelta(seconds=15),
    "Time after its last renewal at which a leader gives up; at the latest one retry period before the lease ends.",
    least=_LEAST,
)  # fmt: skip
KUBERNETES_RETRY_PERIOD: Final = ConfigOption(
    _P + "retry-period", timedelta, timedelta(seconds=5),
    "Time between two renewals of a leader, and between two checks of a standby; at most a third of the lease "
    "duration, and half of the renew deadline.",
    least=_LEAST,
)  # fmt: skip


class KubernetesMissingError(HostError):
    """The settings ask for Kubernetes, but its client is not installed."""

    def __init__(self) -> None:
        super().__init__(
            "'high-availability.type: kubernetes' needs Kubernetes' client in every driver and client: "
            "pip install 'headrace[kubernetes]'"
        )


class VersionConflictError(Exception):
    """An object has another version than the one read, or exists already."""


class KubernetesClient:
    """Access to the objects of one cluster, as classes of the official client.

    ConfigurationError if the settings are invalid; CheckpointStorageError if the API server fails.
    """

    def __init__(self, settings: Settings, cluster: str, timeout_s: float) -> None:
        """Connect with the settings; `timeout_s` is the time-out of each request."""
        try:
            import kubernetes.client
            import kubernetes.client.exceptions
            import kubernetes.config
            import urllib3.exceptions
        except ImportError as error:
            raise KubernetesMissingError from error
        self.cluster: Final = cluster
        self.models: Final[Any] = kubernetes.client
        self._name: Final = settings.get_option(KUBERNETES_CLUSTER_ID) or cluster
        if not _NAME.fullmatch(self._name):
            raise ConfigurationError(
                KUBERNETES_CLUSTER_ID.key,
                self._name,
                "it may have at most 45 characters of a-z, 0-9 and '-'",
            )
        self._namespace: Final = settings.get_option(KUBERNETES_NAMESPACE)
        self._api_error: Final = kubernetes.client.exceptions.ApiException
        self._failures: Final = (self._api_error, urllib3.exceptions.HTTPError, OSError)
        self._timeout_s: Final = timeout_s
        configuration: Any = kubernetes.client.Configuration()
        file, context = settings.get_option(CONFIG_FILE), settings.get_option(CONTEXT)
        try:
            if file or context:
                kubernetes.config.load_kube_config(
                    file or None, context or None, configuration, persist_config=False
                )
            else:
                kubernetes.config.load_config(client_configuration=configuration)
        except (kubernetes.config.ConfigException, OSError) as error:
            raise ConfigurationError(CONFIG_FILE.key, file, str(error)) from error
        # A repeated write would be refused because of the first one.
        configuration.retries = False
        self._api: Final = kubernetes.client.ApiClient(configuration)
        self._leases: Final = kubernetes.client.CoordinationV1Api(self._api)
        self._core: Final = kubernetes.client.CoreV1Api(self._api)

    @property
    def lease_name(self) -> str:
        return f"{self._name}-leader"

    @property
    def map_name(self) -> str:
        return f"{self._name}-job-graphs"

    def read_lease(self) -> Any | None:
        """Return the Lease, or None if it does not exist."""
        return self._read(self.lease_name, self._leases.read_namespaced_lease)

    def write_lease(self, lease: Any) -> Any:
        """Create or replace the Lease; return it with its version. VersionConflictError if it was changed meanwhile."""
        if lease.metadata.resource_version is None:
            return self._create(lease, self._leases.create_namespaced_lease)
        return self._replace(lease, self._leases.replace_namespaced_lease)

    def read_map(self) -> Any | None:
        """Return the ConfigMap, or None if it does not exist."""
        return self._read(self.map_name, self._core.read_namespaced_config_map)

    def write_map(self, config_map: Any) -> Any:
        """Create or replace the ConfigMap. VersionConflictError if it was changed meanwhile."""
        if config_map.metadata.resource_version is None:
            return self._create(config_map, self._core.create_namespaced_config_map)
        return self._replace(config_map, self._core.replace_namespaced_config_map)

    def metadata(self, name: str) -> Any:
        """Return the metadata of a new object."""
        return self.models.V1ObjectMeta(
            name=name, namespace=self._namespace, labels={"app": self._name}, annotations={}
        )

    def place_of(self, name: str) -> str:
        """Return the name of an object for messages."""
        return f"kubernetes://{self._namespace}/{name}"

    def close(self) -> None:
        """Close the connections. Idempotent."""
        self._api.close()

    def _read(self, name: str, call: Callable[..., T]) -> T | None:
        try:
            return self._run(
                "read",
                name,
                lambda: call(name, self._namespace, _request_timeout=self._timeout_s),
            )
        except CheckpointStorageError as error:
            if getattr(error.__cause__, "status", None) == _NOT_FOUND:
                return None
            raise

    def _create(self, body: Any, call: Callable[..., T]) -> T:
        return self._run(
            "create",
            body.metadata.name,
            lambda: call(self._namespace, body, _request_timeout=self._timeout_s),
        )

    def _replace(self, body: Any, call: Callable[..., T]) -> T:
        name = body.metadata.name
        return self._run(
            "replace",
            name,
            lambda: call(name, self._namespace, body, _request_timeout=self._timeout_s),
        )

    def _run(self, verb: str, name: str, body: Callable[[], T]) -> T:
        try:
            return body()
        except self._failures as error:
            status = getattr(error, "status", None)
            if verb != "read" and status in (_CONFLICT, _NOT_FOUND):
                raise VersionConflictError(name) from error
            reason = f"{type(error).__name__} {error}" if status is None else f"status {status}"
            remedy = _REMEDY
            if status in _REFUSED:
                remedy = "its service account needs get, create and update of leases and configmaps"
            raise CheckpointStorageError(verb, self.place_of(name), reason, remedy) from error
