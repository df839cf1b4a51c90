"""`shortlist doctor` beside a service with API keys."""

from pathlib import Path

import pytest

from app.api.api_keys import new_key
from app.platform.settings import misspelled
from app.storage.embedded.server import EmbeddedServer
from server import cli
from service_process import serving
from shortlist_client import Client


def test_it_says_that_a_key_is_needed_and_uses_the_one_that_it_is_given(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    key, entry = new_key("doctor", ["read"])

    def asked(*arguments: str) -> tuple[int, str]:
        status = cli.main(["doctor", "--port", str(service.port), "--data-dir", str(tmp_path), *arguments])
        return status, capsys.readouterr().out

    with serving(tmp_path, SHORTLIST_API_KEYS=entry) as service:
        status, said = asked()
        assert "-    status     its figures need a key of scope read: --key or SHORTLIST_KEY" in said
        assert "FAIL status" not in said
        assert "FAIL durability" not in said
        status, said = asked("--key", "sl_another")
        assert status == 1
        assert "FAIL status     the API key is not known" in said
        monkeypatch.setenv("SHORTLIST_KEY", key)
        _, said = asked()
        assert "ok   durability the store's appendfsync is always" in said
        with Client(service.url, key=key) as client:
            words = [finding.text for finding in client.status().findings]
        assert len(words) == 2
        assert [word for word in words if word not in said] == []


@pytest.mark.rest
def test_it_says_that_the_store_of_a_service_is_away(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    with EmbeddedServer(tmp_path / "store") as store, serving(tmp_path, "--redis-url", store.url) as service:
        store.stop()
        assert cli.main(["doctor", "--port", str(service.port), "--data-dir", str(tmp_path)]) == 1
    said = capsys.readouterr().out
    assert "FAIL store      the store does not answer" in said
    assert "the check broke" not in said


@pytest.mark.rest
def test_it_looks_at_the_mode_of_the_file_of_keys(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    """A digest alone is no secret; an entry that signs passes is."""
    file = tmp_path / "keys"
    monkeypatch.setenv("SHORTLIST_API_KEYS_FILE", str(file))
    signs, plain = new_key("web", ["choose"], {"visitors": "60"})[1], new_key("web", ["choose"])[1]

    def said() -> str:
        cli.main(["doctor", "--port", "1", "--data-dir", str(tmp_path / "data")])
        return next(line for line in capsys.readouterr().out.splitlines() if " keys " in line)

    for entry, mode, words in (
        (signs, 0o644, "FAIL keys"),
        (signs, 0o600, "ok   keys"),
        (plain, 0o644, "-    keys"),
        ("nonsense", 0o600, "FAIL keys"),
    ):
        file.unlink(missing_ok=True)
        file.write_text(entry)
        file.chmod(mode)
        assert said().startswith(words), (entry, oct(mode))
    file.unlink()
    assert said().startswith("FAIL keys")


@pytest.mark.rest
def test_a_misspelled_setting_is_named_by_the_doctor_and_in_the_log(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    """It was ignored without a word, and the service ran with the default."""
    sentence = "SHORTLIST_PARTITION is not a setting and has no effect: did you mean SHORTLIST_PARTITIONS?"
    arguments = ["doctor", "--port", "1", "--data-dir", str(tmp_path / "data")]
    monkeypatch.setenv("SHORTLIST_PORT_8080_TCP", "tcp://10.0.0.1:8080")  # as Kubernetes sets it
    cli.main(arguments)
    assert "ok   settings   no environment variable is misspelled" in capsys.readouterr().out
    monkeypatch.setenv("SHORTLIST_PARTITION", "3")
    assert cli.main(arguments) == 1
    assert f"FAIL settings   {sentence}" in capsys.readouterr().out
    with serving(tmp_path, SHORTLIST_PARTITION="3") as service:
        assert service.await_message(sentence)["level"] == "WARNING"
    assert misspelled(["SHORTLIST_MIPS_CACHE_MB", "SHORTLIST_LEASE_S"], []) == [
        "SHORTLIST_LEASE_S is gone and has no effect: remove it",
        "SHORTLIST_MIPS_CACHE_MB is gone and has no effect: set SHORTLIST_SEARCH_CACHE_MB in its place",
    ]


@pytest.mark.rest
def test_it_asks_the_service_of_the_environment_unless_another_one_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    """The key of the environment went to this machine, whatever service it was for."""
    with serving(tmp_path) as service:
        monkeypatch.setenv("SHORTLIST_URL", service.url)
        for arguments, line in (
            ([], "ok   service    is ready"),
            (["--port", "1"], "-    service    nothing answers at http://127.0.0.1:1"),
            (["--host", "::1", "--port", "1"], "-    service    nothing answers at http://[::1]:1"),
        ):
            cli.main(["doctor", "--data-dir", str(tmp_path), *arguments])
            assert line in capsys.readouterr().out, arguments
    monkeypatch.setenv("SHORTLIST_URL", "web:8080")
    assert cli.main(["doctor", "--data-dir", str(tmp_path)]) == 1
    assert "FAIL service    url must" in capsys.readouterr().out
