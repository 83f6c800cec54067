"""Kubelet: runs the pods that Spark creates at a KubernetesApi as processes of this host.

A container becomes a process with the environment and the arguments of the pod's description and nothing else of ours;
paths in the container become folders of the pod; each pod has a loopback address of its own, or, with a PodNetwork, a
network namespace, and finds others by the names of Services.
"""

import os
import signal
import socket
import subprocess
import threading
from collections.abc import Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from headrace.core.randomness import secret_token
from headrace.core.threads import start_thread
from testkit.kubernetes_api import KubernetesApi, kubernetes_api, timestamp
from testkit.waiting import wait_until
from tests.spark.pod_image import PodImage, hosts_of_services
from tests.spark.pod_network import PodNetwork
from tests.spark.processes import MARK_VARIABLE, SPARK_HOME, marked_processes, new_mark

_GRACE_S: Final = 10.0
_EXECUTORS: Final = {
    "spark.kubernetes.container.image": "pip-pyspark",
    "spark.executor.instances": "2",
    "spark.executor.cores": "2",
}
_HERE: Final = f"127.0.0.1 localhost kubernetes.default.svc {socket.gethostname()}"


@dataclass(frozen=True)
class Pod:
    """A pod whose container has been started: where it is kept, its name, address and process."""

    path: str
    name: str
    address: str
    folder: Path
    process: subprocess.Popen[bytes]

    @property
    def log(self) -> str:
        """What its container has printed."""
        return (self.folder / "log").read_text()


class Kubelet:
    """Starts a pod's container when the pod is created, ends it when the pod is deleted, and tells the API of both."""

    def __init__(
        self, api: KubernetesApi, folder: Path, image: PodImage, network: PodNetwork | None = None
    ) -> None:
        self.mark: Final = new_mark()
        """In the environment of every process that comes from a pod."""
        self.pods: Final[dict[str, Pod]] = {}
        """By path; those that were deleted stay."""
        self._api: Final = api
        self._folder: Final = folder
        self._image: Final = image
        self._network: Final = network
        self._lock: Final = threading.Lock()
        self._publish_names()
        self._pod_count = 0
        self._threads: Final[dict[str, threading.Thread]] = {}
        self._thread: Final = start_thread("kubelet", self._run)

    def running(self) -> list[Pod]:
        """Pods whose container runs."""
        return [pod for pod in self.pods.values() if pod.process.poll() is None]

    def close(self) -> None:
        """End every process of every pod; the server has been closed."""
        self._thread.join(10)
        for one in marked_processes(self.mark):
            one.kill()
        for thread in self._threads.values():
            thread.join(10)

    def _run(self) -> None:
        for event in self._api.events():
            if event is not None and "/services/" in event.path:
                self._publish_names()
            if event is None or "/pods/" not in event.path:
                continue
            if event.kind == "ADDED":
                name = event.object["metadata"]["name"]
                self._threads[event.path] = start_thread(
                    f"pod-{name}", lambda event=event: self._live(event.path, event.object)
                )
            elif event.kind == "MODIFIED" and "deletionTimestamp" in event.object["metadata"]:
                start_thread(f"end-of-{event.path}", lambda event=event: self._delete(event.path))

    def _live(self, path: str, description: dict[str, Any]) -> None:
        """Start the container as soon as what it mounts is there, and wait for its end."""
        [container] = description["spec"]["containers"]
        wait_until(
            lambda: self._are_mountable(path, description["spec"].get("volumes", [])),
            60,
            f"config maps of {path}",
        )
        if "deletionTimestamp" in self._api.objects[path]["metadata"]:
            return
        pod = self._start(path, description, container)
        started = timestamp()
        self._tell(pod, container["name"], "Running", {"running": {"startedAt": started}})
        code = pod.process.wait()
        # A container's other processes end with its first one.
        with suppress(ProcessLookupError):
            os.killpg(pod.process.pid, signal.SIGKILL)
        code = 128 - code if code < 0 else code
        ended = {"exitCode": code, "startedAt": started, "finishedAt": timestamp()}
        phase, ended["reason"] = ("Failed", "Error") if code else ("Succeeded", "Completed")
        self._tell(pod, container["name"], phase, {"terminated": ended})

    def _start(self, path: str, description: dict[str, Any], container: dict[str, Any]) -> Pod:
        name = description["metadata"]["name"]
        folder = self._folder / name
        folder.mkdir()
        prefix: tuple[str, ...] = ()
        with self._lock:
            self._pod_count += 1
            address = f"127.0.1.{self._pod_count}"
        if self._network is not None:
            address, prefix = self._network.join()
        mounts = self._mounts(path, description, container, folder)
        environment = self._image.variables(folder / "home")
        environment |= self._environment(description, container, address, mounts)
        with (folder / "log").open("wb") as log:
            command = self._image.entry_point(
                container["args"], lambda text: _outside(text, mounts)
            )
            process = subprocess.Popen(
                [*prefix, *command],
                cwd=folder,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        pod = self.pods[path] = Pod(path, name, address, folder, process)
        return pod

    def _delete(self, path: str) -> None:
        pod = self.pods.get(path)
        if pod is not None:
            pod.process.terminate()
            try:
                pod.process.wait(_GRACE_S)
            except subprocess.TimeoutExpired:
                pod.process.kill()
        self._threads[path].join()
        self._api.remove(path)

    def _tell(self, pod: Pod, container: str, phase: str, state: dict[str, Any]) -> None:
        is_ready = phase == "Running"
        status = {
            "phase": phase,
            "podIP": pod.address,
            "hostIP": "127.0.0.1",
            "conditions": [{"type": "Ready", "status": str(is_ready)}],
            "containerStatuses": [{"name": container, "ready": is_ready, "state": state}],
        }
        self._api.change(pod.path, lambda stored: stored.update(status=status))
        self._publish_names()

    def _publish_names(self) -> None:
        """Write the file of names, as the cluster's DNS tells them."""
        with self._lock:
            services, pods = map(self._api.collection, ("services", "pods"))
            text = "\n".join([_HERE, *hosts_of_services(services, pods), ""])
            new = self._image.hosts.with_suffix(".new")
            new.write_text(text)
            new.replace(self._image.hosts)

    def _are_mountable(self, path: str, volumes: list[dict[str, Any]]) -> bool:
        """Return whether the config maps of all volumes are there, or the pod is to go."""
        wanted = [self._config_map(path, volume) for volume in volumes]
        is_going = "deletionTimestamp" in self._api.objects[path]["metadata"]
        return is_going or all(one is None or one in self._api.objects for one in wanted)

    def _config_map(self, path: str, volume: dict[str, Any]) -> str | None:
        """Return where the config map of a volume is kept, or None where it is of another kind."""
        if "configMap" not in volume:
            return None
        return path.partition("/pods/")[0] + f"/configmaps/{volume['configMap']['name']}"

    def _mounts(
        self, path: str, description: dict[str, Any], container: dict[str, Any], folder: Path
    ) -> dict[str, Path]:
        """Make a folder for each volume that is mounted, with what its config map has; by path in the container."""
        volumes = {volume["name"]: volume for volume in description["spec"].get("volumes", [])}
        result: dict[str, Path] = {}
        for mount in container.get("volumeMounts", []):
            volume = volumes[mount["name"]]
            place = folder / "volumes" / mount["name"]
            place.mkdir(parents=True, exist_ok=True)
            config_map = self._config_map(path, volume)
            if config_map is not None:
                data = self._api.objects[config_map]["data"]
                every = [{"key": key, "path": key} for key in data]
                for item in volume["configMap"].get("items", every):
                    (place / item["path"]).write_text(data[item["key"]])
            result[mount["mountPath"]] = place
        return result

    def _environment(
        self,
        pod: dict[str, Any],
        container: dict[str, Any],
        address: str,
        mounts: dict[str, Path],
    ) -> dict[str, str]:
        fields = {"status.podIP": address, "metadata.name": pod["metadata"]["name"]}
        result = {MARK_VARIABLE: self.mark}
        for variable in container.get("env", []):
            source = variable.get("valueFrom")
            value = (
                variable.get("value", "")
                if source is None
                else fields[source["fieldRef"]["fieldPath"]]
            )
            result[variable["name"]] = _outside(value, mounts)
        return result


def _outside(text: str, mounts: dict[str, Path]) -> str:
    """Return a text with paths of this host in place of those in the container."""
    for inside, outside in mounts.items():
        text = text.replace(inside, str(outside))
    return text


@dataclass(frozen=True)
class KubernetesCluster:
    """API server, kubelet and image, and the options of `headrace` that lead there."""

    api: KubernetesApi
    kubelet: Kubelet
    image: PodImage
    options: tuple[str, ...]
    submission: tuple[str, ...]
    """`spark-submit` with its options for a driver in a pod."""

    def pod(self, suffix: str) -> Pod:
        """Return the pod with this end of its name, once its container has been started."""
        wait_until(lambda: bool(self._pods(suffix)), 120, f"a pod *{suffix}")
        [found] = self._pods(suffix)
        return found

    def phase(self, pod: Pod) -> str:
        """Return how far a pod is that was not deleted."""
        return self.api.objects[pod.path]["status"]["phase"]

    def delete(self, pod: Pod) -> None:
        """Delete a pod, as `kubectl delete pod` does; it ends soon."""
        status, _ = self.api.answer("DELETE", pod.path, b"")
        assert status == 200

    def _pods(self, suffix: str) -> list[Pod]:
        return [pod for pod in list(self.kubelet.pods.values()) if pod.name.endswith(suffix)]


@contextmanager
def kubernetes_cluster(
    folder: Path, network: PodNetwork | None = None
) -> Generator[KubernetesCluster]:
    """Give a cluster whose files are in `folder`, which must exist; it ends with the block.

    With a network its pods are hosts of it, and reach drivers on this one.
    """
    token = secret_token().hex()
    image = PodImage(folder)
    with kubernetes_api(token=token, kept=("pods",)) as api:
        kubelet = Kubelet(api, folder, image, network)
        try:
            assert api.certificate is not None
            certificate, token_file = folder / "ca.pem", folder / "token"
            certificate.write_bytes(api.certificate)
            token_file.touch(mode=0o600)
            token_file.write_text(token)
            settings = {
                **_credentials("spark.kubernetes.authenticate", certificate, token_file),
                "spark.driver.host": "127.0.0.1" if network is None else network.gateway,
                **_EXECUTORS,
            }
            # A kubelet puts the files of the service account into each pod, where Spark looks for them by itself.
            submitted = {
                **_credentials("spark.kubernetes.authenticate.submission", certificate, token_file),
                **_credentials(
                    "spark.kubernetes.authenticate.driver.mounted", certificate, token_file
                ),
                "spark.kubernetes.driver.master": f"https://kubernetes.default.svc:{api.port}",
                "spark.pyspark.python": str(image.python),
                **_EXECUTORS,
            }
            master = f"k8s://{api.address}"
            yield KubernetesCluster(
                api,
                kubelet,
                image,
                ("--master", master, *_words("-D", settings)),
                (
                    str(SPARK_HOME / "bin" / "spark-submit"),
                    *("--master", master, "--deploy-mode", "cluster"),
                    *_words("--conf", submitted),
                ),
            )
        finally:
            api.close()
            kubelet.close()


def _credentials(prefix: str, certificate: Path, token: Path) -> dict[str, str]:
    return {f"{prefix}.caCertFile": str(certificate), f"{prefix}.oauthTokenFile": str(token)}


def _words(option: str, settings: dict[str, str]) -> list[str]:
    return [word for pair in settings.items() for word in (option, "=".join(pair))]
