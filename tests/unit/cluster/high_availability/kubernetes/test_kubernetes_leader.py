"""Terms of the lease in Kubernetes, from Flink's options."""

import pytest

from headrace.cluster.high_availability.kubernetes.kubernetes_leader import kubernetes_terms
from headrace.cluster.high_availability.lease import LeaseTerms
from headrace.core.config import Settings
from headrace.core.errors import ConfigurationError

_P = "high-availability.kubernetes.leader-election."


def test_a_leader_gives_up_a_retry_period_before_flink_s_lease_ends() -> None:
    assert kubernetes_terms(Settings()) == LeaseTerms(15_000, 10_000, 5_000)


def test_a_shorter_renew_deadline_counts() -> None:
    settings = Settings({f"{_P}renew-deadline": "8 s", f"{_P}retry-period": "2 s"})
    assert kubernetes_terms(settings) == LeaseTerms(15_000, 8_000, 2_000)


@pytest.mark.parametrize("values", [{"lease-duration": "14 s"}, {"renew-deadline": "9 s"}])
def test_terms_under_which_one_slow_renewal_ends_a_leadership_are_refused(
    values: dict[str, str],
) -> None:
    settings = Settings({_P + key: value for key, value in values.items()})
    with pytest.raises(ConfigurationError, match="retry-period"):
        kubernetes_terms(settings)
