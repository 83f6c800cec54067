"""A cluster does not start where no executor has what one TaskManager takes, and says which setting to change."""

import pytest

from headrace.core.config import Settings
from headrace.core.errors import ConfigurationError
from headrace.spark.master import parse_master
from headrace.spark.workers.worker_settings import (
    refuse_missing_image,
    refuse_unknown_resources,
    task_managers_at_most,
)

TWO_GPUS = Settings({"external-resources": "gpu", "external-resource.gpu.amount": "2"})
AMOUNT = "spark.executor.resource.gpu.amount"


@pytest.mark.parametrize(("conf", "has"), [({}, "none"), ({AMOUNT: "1"}, "1")])
def test_resources_that_no_executor_has_are_refused_by_name(conf: dict[str, str], has: str) -> None:
    with pytest.raises(ConfigurationError, match=rf"takes 2 of it, .* has {has}: set spark\.exec"):
        refuse_unknown_resources(TWO_GPUS, conf)


def test_executors_on_kubernetes_need_an_image() -> None:
    conf = {"spark.master": "k8s://https://host:6443"}
    with pytest.raises(
        ConfigurationError, match=r"spark\.kubernetes\.container\.image.*set an image"
    ):
        refuse_missing_image(conf)
    refuse_missing_image({**conf, "spark.kubernetes.executor.container.image": "streams"})
    refuse_missing_image({"spark.master": "yarn"})


@pytest.mark.parametrize(
    ("master", "cpu_cores", "count"),
    [
        ("local[5]", 1.0, 4),
        ("local[5]", 2.0, 4),
        ("local-cluster[2,3,1024]", 1.0, 5),
        ("local-cluster[2,3,1024]", 2.0, 1),
        ("spark://host:7077", 1.0, 0),
    ],
)
def test_task_managers_are_counted_where_they_share_one_host(
    master: str, cpu_cores: float, count: int
) -> None:
    assert task_managers_at_most(parse_master(master, 1), cpu_cores) == count
