"""External resources are read from Flink's options, and refused where tasks would share an address."""

import pytest

from headrace.cluster.resource_manager.workers import worker_profile
from headrace.cluster.task_executor.external_resources import external_resource_amounts
from headrace.core.config import Settings
from headrace.core.errors import ConfigurationError
from headrace.core.resource_profile import ResourceProfile


def test_a_worker_is_asked_for_with_the_resources_that_the_settings_name() -> None:
    settings = Settings(
        {"external-resources": "gpu;fpga", "external-resource.gpu.amount": "2"},
    )
    assert worker_profile(settings) == ResourceProfile(external_resources=(("gpu", 2), ("fpga", 1)))


def test_an_amount_that_is_no_number_is_an_error_that_names_its_option() -> None:
    settings = Settings({"external-resources": "gpu", "external-resource.gpu.amount": "half"})
    with pytest.raises(ConfigurationError, match=r"external-resource\.gpu\.amount"):
        external_resource_amounts(settings)


def test_several_slots_of_one_task_manager_may_not_share_addresses() -> None:
    settings = Settings({"external-resources": "gpu", "taskmanager.numberOfTaskSlots": "2"})
    with pytest.raises(ConfigurationError, match="numberOfTaskSlots"):
        external_resource_amounts(settings)


def test_a_profile_without_a_gpu_does_not_serve_one_that_needs_it() -> None:
    needed = ResourceProfile(external_resources=(("gpu", 1),))
    assert not ResourceProfile(cpu_cores=8.0).matches(needed)
    assert ResourceProfile(external_resources=(("gpu", 2),)).matches(needed)
