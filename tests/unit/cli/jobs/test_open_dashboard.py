"""`headrace open`: the browser is signed in, and nobody else sees the token."""

import json
import stat
import webbrowser
from pathlib import Path

import pytest

from headrace.cli.jobs.open_dashboard import write_page
from tests.unit.cli.shell import Shell
from tests.unit.rest.fake_cluster import FakeCluster, fake_cluster, home_of

CONFIG = {"GET /config": {"refresh-interval": 3000}}


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    addresses: list[str] = []

    def note(address: str) -> bool:
        addresses.append(address)
        return True

    monkeypatch.setattr(webbrowser, "open", note)
    return addresses


def page_of(cluster: FakeCluster, home: Path) -> Path:
    return home / "clusters" / f"{cluster.address.rpartition(':')[2]}.html"


def test_the_browser_is_given_a_private_file_that_leads_to_the_dashboard(
    shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, opened: list[str]
) -> None:
    with fake_cluster(CONFIG, token="s/ecret") as cluster:
        home_of(monkeypatch, tmp_path, cluster)
        outcome = shell("open")
    page = page_of(cluster, tmp_path)
    assert opened == [page.as_uri()]
    assert stat.S_IMODE(page.stat().st_mode) == 0o600
    assert f'location.replace("{cluster.address}/#token=s%2Fecret")' in page.read_text()
    assert "ecret" not in outcome.out + outcome.err
    assert outcome.out == f"The dashboard of {cluster.address} opens in your browser.\n"


def test_without_a_browser_it_says_what_to_do(
    shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(webbrowser, "open", lambda address: False)
    with fake_cluster(CONFIG) as cluster:
        home_of(monkeypatch, tmp_path, cluster)
        outcome = shell("open")
    assert outcome.out.startswith(f"No browser was found here: open {page_of(cluster, tmp_path)}")
    assert outcome.code == 0


def test_the_address_is_printed_with_the_token_on_demand_alone(
    shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, opened: list[str]
) -> None:
    with fake_cluster(CONFIG) as cluster:
        home_of(monkeypatch, tmp_path, cluster)
        assert shell("open", "--print").out == f"{cluster.address}/#token=the-token\n"
        assert opened == []
        assert json.loads(shell("open", "--json").out) == {"address": cluster.address}


def test_a_wrong_token_is_told_before_a_browser_opens(
    shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, opened: list[str]
) -> None:
    with fake_cluster(CONFIG, token="new") as cluster:
        home_of(monkeypatch, tmp_path)
        monkeypatch.setenv("HEADRACE_TOKEN", "old")
        outcome = shell("open", "-m", cluster.authority)
    assert outcome.code == 1
    assert "the token from HEADRACE_TOKEN is not that of the cluster" in outcome.err
    assert opened == []


def test_an_address_cannot_leave_its_place_in_the_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADRACE_HOME", str(tmp_path))
    page = write_page("http://127.0.0.1:1", 'http://x/"</script><b onclick="').read_text()
    assert page.count("</script>") == 1
    assert "<b" not in page
