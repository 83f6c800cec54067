"""Settings of drivers that elect their leader at a stand-in for Kubernetes, and the terms that the example sets."""

import re
from pathlib import Path

from testkit.kubernetes_api import KubernetesApi
from tests.architecture.floor_plan import ROOT


def kubernetes_options(folder: Path, api: KubernetesApi, *, lease: str) -> dict[str, str]:
    """Return the settings of a driver that elects its leader at a stand-in. `lease`: its duration, 3 s at least."""
    file = folder / "kube-config"
    file.write_text(api.kube_config())
    election = "high-availability.kubernetes.leader-election."
    return {
        "high-availability.type": "kubernetes",
        "kubernetes.config.file": str(file),
        "kubernetes.cluster-id": "orders",
        "kubernetes.namespace": "streams",
        f"{election}lease-duration": lease,
        f"{election}retry-period": "1 s",
    }


def manifest_terms() -> dict[str, str]:
    """Return the terms of the lease that the manifest of examples/deploy sets."""
    manifest = (ROOT / "examples" / "deploy" / "headrace-orders.yaml").read_text()
    found = re.findall(r"- (high-availability\.kubernetes\.leader-election\.\S+)=(.+)", manifest)
    assert len(found) == 3, "it sets no terms of the lease"
    return dict(found)
