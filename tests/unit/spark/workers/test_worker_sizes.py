"""Which sizes of TaskManagers a Spark application can have, by its master and its settings."""

import pytest

from headrace.core.config import Settings
from headrace.core.resource_profile import ResourceProfile
from headrace.spark.master import parse_master
from headrace.spark.workers.worker_sizes import WorkerSizes

USUAL = ResourceProfile(1.0, 1 << 30, managed_bytes=256 << 20)
STANDALONE = "spark://host:7077"
GPU = "spark.executor.resource.gpu"
FIXED = {"spark.executor.cores": "4", f"{GPU}.amount": "1", f"{GPU}.discoveryScript": "/find"}
DYNAMIC = {**FIXED, "spark.dynamicAllocation.enabled": "true"}


def sizes(master: str, conf: dict[str, str]) -> WorkerSizes:
    settings = Settings({"taskmanager.memory.process.size": "2g"})
    return WorkerSizes(settings, {"spark.master": master, **conf}, parse_master(master, 2))


def gpus(amount: int) -> ResourceProfile:
    return ResourceProfile(1.0, 1 << 20, external_resources=(("gpu", amount),))


@pytest.mark.parametrize(
    ("master", "conf", "profile", "refusal"),
    [
        (
            "local[4]",
            {},
            ResourceProfile(2.0, 1),
            "all TaskManagers have the same size, as Spark has no",
        ),
        ("local-cluster[1,3,1024]", {}, ResourceProfile(3.0, 1 << 20), ""),
        (
            "local-cluster[1,3,1024]",
            {},
            ResourceProfile(4.0, 1 << 20),
            "has 3 core(s): raise spark",
        ),
        (STANDALONE, FIXED, ResourceProfile(4.0, 1 << 20), ""),
        (STANDALONE, FIXED, ResourceProfile(5.0, 1 << 20), "an executor has 4 core(s)"),
        (
            STANDALONE,
            FIXED,
            ResourceProfile(1.0, 2 << 30),
            "only where spark.dynamicAllocation.ena",
        ),
        (STANDALONE, FIXED, gpus(1), ""),
        (STANDALONE, FIXED, gpus(2), f"an executor has 1: set {GPU}.amount to 2 or more"),
        (STANDALONE, {}, gpus(1), f"an executor has none: set {GPU}.amount to 1 or more"),
        (STANDALONE, DYNAMIC, ResourceProfile(5.0, 2 << 30), ""),
        (STANDALONE, DYNAMIC, gpus(2), ""),
        (
            STANDALONE,
            {"spark.dynamicAllocation.enabled": "true"},
            gpus(1),
            f"set {GPU}.discoveryScript to a program that finds them",
        ),
    ],
)
def test_what_can_never_be_is_said_with_what_to_do(
    master: str, conf: dict[str, str], profile: ResourceProfile, refusal: str
) -> None:
    found = sizes(master, conf).refusal_of(profile, USUAL)
    assert (refusal in found) if refusal else found == ""


def test_a_task_manager_of_its_own_size_has_one_slot_with_what_was_asked_for() -> None:
    profile = ResourceProfile(1.5, 512 << 20, 100 << 20, 256 << 20)
    own = sizes(STANDALONE, DYNAMIC).settings_of(profile)
    assert own["taskmanager.cpu.cores"] == "1.5"
    assert own["taskmanager.numberOfTaskSlots"] == "1"
    # 128 + 512 + 128 + 100 + 256 mb and a tenth of the sum for the network, and the overhead.
    assert int(own["taskmanager.memory.flink.size"]) >> 20 == 1248
    assert int(own["taskmanager.memory.process.size"]) >> 20 == 1440
    # Its limit is that of its own size, where nobody named another one.
    assert own["headrace.taskmanager.memory.limit"] == own["taskmanager.memory.process.size"]
    # The executors that there are keep the memory that they have.
    fixed = sizes(STANDALONE, FIXED).settings_of(profile)
    assert fixed.keys() == {"taskmanager.cpu.cores", "taskmanager.numberOfTaskSlots"}


def test_more_gpus_than_all_executors_have_are_lacking_where_their_number_is_fixed() -> None:
    conf = {f"{GPU}.amount": "2"}
    found = sizes("local-cluster[2,4,1024]", conf)
    assert found.lacking({gpus(1): 4, USUAL: 9}) == ""
    assert (
        found.lacking({gpus(1): 5}) == "the job's slots need 5 gpu in total, but there are only 4"
    )
    assert sizes(STANDALONE, conf).lacking({gpus(1): 5}) == "", "others may join"
