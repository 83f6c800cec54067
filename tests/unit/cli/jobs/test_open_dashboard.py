"""`headrace open`: the browser is signed in, and nobody else sees the token."""

import json
import os
import signal
import stat
import subprocess
import sys
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
    assert "the token from HEADRACE_TOKEN is not the token of the cluster" in outcome.err
    assert opened == []


def test_an_address_cannot_leave_its_place_in_the_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADRACE_HOME", str(tmp_path))
    page = write_page("1", 'http://x/"</script><b onclick="').read_text()
    assert page.count("</script>") == 1
    assert "<b" not in page


def pages(home: Path) -> list[Path]:
    return list((home / "clusters").glob("*.html"))


@pytest.mark.parametrize("has_browser", [True, False])
def test_the_page_of_a_cluster_elsewhere_is_removed_a_little_later(
    shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_browser: bool
) -> None:
    seen: list[str] = []

    def read(address: str) -> bool:
        seen.append(Path(address.removeprefix("file://")).read_text())
        return has_browser

    monkeypatch.setattr(webbrowser, "open", read)
    monkeypatch.setattr("headrace.cli.jobs.open_dashboard._PAGE_KEPT_S", 0.0)
    with fake_cluster(CONFIG) as cluster:
        home_of(monkeypatch, tmp_path)
        monkeypatch.setenv("HEADRACE_TOKEN", "the-token")
        assert shell("open", "-m", cluster.authority).code == 0
    assert f"{cluster.address}/#token=the-token" in seen[0]
    assert pages(tmp_path) == []


def test_the_page_of_a_copied_connection_file_is_removed(
    shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, opened: list[str]
) -> None:
    monkeypatch.setattr("headrace.cli.jobs.open_dashboard._PAGE_KEPT_S", 0.0)
    with fake_cluster(CONFIG) as cluster:
        home_of(monkeypatch, tmp_path)
        folder = tmp_path / "clusters"
        folder.mkdir(mode=0o700, exist_ok=True)
        copied = folder / "production.json"
        copied.write_text(json.dumps({"address": cluster.address, "token": "the-token"}))
        copied.chmod(0o600)
        assert shell("open").code == 0
    assert len(opened) == 1
    assert pages(tmp_path) == []


@pytest.mark.parametrize("ending", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_whoever_ends_the_wait_removes_the_page_at_once(
    tmp_path: Path, ending: signal.Signals
) -> None:
    environment = {
        **os.environ,
        "HEADRACE_HOME": str(tmp_path),
        "HEADRACE_TOKEN": "the-token",
        "BROWSER": "/bin/true %s",
        "PYTHONUNBUFFERED": "1",
    }
    with (
        fake_cluster(CONFIG) as cluster,
        subprocess.Popen(
            [sys.executable, "-m", "headrace", "open", "-m", cluster.authority],
            env=environment,
            stdout=subprocess.PIPE,
            text=True,
        ) as command,
    ):
        assert command.stdout is not None
        assert "is removed in 30 s" in command.stdout.readline()
        assert len(pages(tmp_path)) == 1
        command.send_signal(ending)
        assert command.wait(20) == 0
    assert pages(tmp_path) == []
