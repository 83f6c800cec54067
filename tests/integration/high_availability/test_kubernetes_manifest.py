"""The manifest of examples/deploy: every field is one that Kubernetes has, and its command line one that we take."""

import re
from pathlib import Path
from typing import Any, Final

import pytest
import yaml
from kubernetes import client

from headrace.cli.cluster.start_cluster import start_cluster

pytestmark = pytest.mark.integration

EXAMPLES: Final = Path(__file__).resolve().parents[3] / "examples" / "deploy"
MANIFEST: Final[list[dict[str, Any]]] = list(
    yaml.safe_load_all((EXAMPLES / "headrace-orders.yaml").read_text())
)


def problems(type_name: str, value: Any, place: str) -> list[str]:
    """Return what in `value` is not as the description of Kubernetes' API says, with its place."""
    listed = re.fullmatch(r"list\[(.+)\]", type_name)
    if listed is not None:
        return [
            each
            for index, one in enumerate(value)
            for each in problems(listed[1], one, f"{place}[{index}]")
        ]
    mapped = re.fullmatch(r"dict[(\[]str, (.+)[)\]]", type_name)
    if mapped is not None:
        return [
            each
            for key, one in value.items()
            for each in problems(mapped[1], one, f"{place}.{key}")
        ]
    model = getattr(client, type_name, None)
    if model is None:
        expected = {"str": str, "int": int, "bool": bool}.get(type_name, object)
        return [] if isinstance(value, expected) else [f"{place} is no {type_name}: {value!r}"]
    by_name = {json: name for name, json in model.attribute_map.items()}
    unknown = [f"{place}.{key} is no field of {type_name}" for key in value.keys() - by_name.keys()]
    known = {by_name[key]: one for key, one in value.items() if key in by_name}
    try:
        model(**known)
    except ValueError as error:
        unknown.append(f"{place}: {error}")
    return unknown + [
        each
        for name, one in known.items()
        for each in problems(model.openapi_types[name], one, f"{place}.{name}")
    ]


@pytest.mark.parametrize("document", MANIFEST, ids=lambda document: document["kind"])
def test_each_document_of_the_manifest_has_the_shape_that_kubernetes_describes(
    document: dict[str, Any],
) -> None:
    assert problems(f"V1{document['kind']}", document, document["kind"]) == []


def test_a_field_that_kubernetes_has_not_is_found() -> None:
    document = {"spec": {"containers": [{"name": "driver", "enviroment": []}]}}
    assert problems("V1Pod", document, "Pod") == [
        "Pod.spec.containers[0].enviroment is no field of V1Container"
    ]


def test_names_within_the_manifest_fit_each_other() -> None:
    by_kind = {document["kind"]: document for document in MANIFEST}
    pod = by_kind["Deployment"]["spec"]["template"]
    assert by_kind["Service"]["spec"]["selector"] == pod["metadata"]["labels"]
    assert by_kind["Deployment"]["spec"]["selector"]["matchLabels"] == pod["metadata"]["labels"]
    account = by_kind["ServiceAccount"]["metadata"]["name"]
    assert pod["spec"]["serviceAccountName"] == account
    assert [one["name"] for one in by_kind["RoleBinding"]["subjects"]] == [account]
    assert by_kind["RoleBinding"]["roleRef"]["name"] == by_kind["Role"]["metadata"]["name"]
    claim = by_kind["PersistentVolumeClaim"]["metadata"]["name"]
    volumes = {one["name"]: one for one in pod["spec"]["volumes"]}
    assert volumes["state"]["persistentVolumeClaim"]["claimName"] == claim
    for container in (*pod["spec"]["initContainers"], *pod["spec"]["containers"]):
        assert {mount["name"] for mount in container["volumeMounts"]} <= volumes.keys()


def test_the_driver_s_command_line_is_one_that_the_command_takes() -> None:
    [deployment] = [document for document in MANIFEST if document["kind"] == "Deployment"]
    [driver] = deployment["spec"]["template"]["spec"]["containers"]
    name, group, command, *arguments = (*driver["command"], *driver["args"])
    assert (Path(name).name, group, command) == ("headrace", "cluster", "start")
    context = start_cluster.make_context(command, list(arguments))
    definitions = dict(context.params["definitions"])
    assert context.params["master"].startswith("k8s://https://")
    assert definitions["high-availability.type"] == "kubernetes"
    assert definitions["headrace.checkpoint.key-file"] == "/secrets/checkpoint-key"


def test_the_image_has_what_the_manifest_expects_of_it() -> None:
    image = (EXAMPLES / "image" / "Dockerfile").read_text()
    [deployment] = [one for one in MANIFEST if one["kind"] == "Deployment"]
    pod = deployment["spec"]["template"]["spec"]
    [driver] = pod["containers"]
    interpreters = [
        one.partition("=")[2] for one in driver["args"] if one.startswith("spark.pyspark.python=")
    ]
    for program in (driver["command"][0], *interpreters):
        assert program.startswith("/opt/venv/bin/")
    assert "python3 -m venv /opt/venv" in image
    assert f"USER {pod['securityContext']['runAsUser']}\n" in image
    root = EXAMPLES.parents[1]
    for source in re.findall(r"^COPY (\S+)", image, re.MULTILINE):
        assert (root / source).exists(), source
