"""A service that cannot start says why in one line, ends with a status, and leaves nothing behind."""

import socket
import stat
from collections.abc import Sequence
from pathlib import Path

import pytest

from server import composition as service
from server.cli import main
from service_process import ShortlistProcess, run, serving

pytestmark = pytest.mark.rest

SERVE = ("serve", "--port", "0")


def told(said: str, words: Sequence[str]) -> str:
    """One line for people, with all of ``words``."""
    assert "Traceback" not in said, said
    assert len(said.splitlines()) == 1, said
    assert said.startswith("shortlist: ")
    for word in words:
        assert word in said, said
    return said


def refused(words: Sequence[str], *arguments: str, cwd: Path, **settings: str) -> str:
    """The command ends with a status and says why."""
    done = run(*arguments, cwd=cwd, **settings)
    assert (done.returncode, done.stdout) == (2, ""), done.stderr
    return told(done.stderr, words)


@pytest.fixture
def working_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a command that runs in this process: it ends before it starts anything."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    "host", ["0.0.0.0", "::", "192.0.2.1", "example.org", "", "127.0.0.1.example.org", "0", "[::1]"]
)
def test_it_listens_to_this_machine_only(working_folder: Path, capsys: pytest.CaptureFixture[str], host: str):
    assert main([*SERVE, "--host", host]) == 2
    told(capsys.readouterr().err, ["not a loopback address", "shortlist key"])
    assert list(working_folder.iterdir()) == [], "refused before anything was made"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("PORT", "http"), ("PORT", "-1"), ("PORT", "65536"), ("PORT", ""), ("WORKER", "perhaps"),
        ("PARTITIONS", "0"), ("PARTITIONS", "many"), ("TOKEN_TTL_S", "0"), ("TOKEN_TTL_S", "1.5"),
        ("OBSERVATION_TTL_S", "-3"), ("REWARD_LOG_S", "-1"), ("POSTERIOR_CACHE_MB", "0"),
        ("SEARCH_CACHE_MB", "0"), ("SEARCH_CACHE_MB", "nan"), ("MAX_BODY_MB", "0"),
        ("MAX_BODY_MB", "1025"), ("MAX_BACKLOG", "0"), ("LOG_LEVEL", "loud"), ("LOG_LEVEL", ""),
        ("LOG_FORMAT", "xml"),
        ("ACCESS_LOG", "2"),
    ],
)  # fmt: skip
def test_a_bad_setting_is_named(
    working_folder: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    value: str,
):
    monkeypatch.setenv(f"SHORTLIST_{name}", value)
    assert main(["serve"]) == 2
    told(capsys.readouterr().err, [f"setting {name.lower()}:"])
    assert list(working_folder.iterdir()) == []


@pytest.mark.parametrize("command", [["serve"], ["worker", "--redis-url", "redis://127.0.0.1:1"]])
def test_a_bound_of_one_kind_of_data_ends_the_start_and_the_one_bound_is_named(
    working_folder: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    command: list[str],
):
    monkeypatch.setenv("SHORTLIST_MAX_DEDUPE_MB", "4096")
    assert main(command) == 2
    told(capsys.readouterr().err, ["SHORTLIST_MAX_DEDUPE_MB", "SHORTLIST_MAX_STORE_MB"])
    assert list(working_folder.iterdir()) == [], "refused before anything was made"


def test_a_flag_wins_over_the_environment_and_is_checked_too(
    working_folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("SHORTLIST_PORT", "0")
    monkeypatch.setenv("SHORTLIST_HOST", "127.0.0.1")
    assert main(["serve", "--port", "x"]) == 2
    told(capsys.readouterr().err, ["setting port:"])
    assert main(["serve", "--log-level", "x"]) == 2
    told(capsys.readouterr().err, ["setting log_level:"])
    assert main(["serve", "--host", "192.0.2.1"]) == 2
    told(capsys.readouterr().err, ["192.0.2.1"])


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        ("serv",),
        ("serve", "--no-such-flag"),
        ("serve", "extra"),
        ("serve", "--workers", "two"),
        ("worker", "x"),
    ],
)
def test_a_command_that_is_none(
    working_folder: Path, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...]
):
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2
    told(capsys.readouterr().err, ["shortlist", *([] if arguments else ["--help"])])


def test_a_port_in_use(tmp_path: Path):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = str(listener.getsockname()[1])
        refused(["cannot listen on 127.0.0.1", port, "in use"], "serve", "--port", port, cwd=tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_data_directory_in_use(tmp_path: Path):
    with serving(tmp_path) as first:
        data = str(tmp_path / "data")
        refused([data, f"in use by process {first.pid}"], *SERVE, "--data-dir", data, cwd=tmp_path)
        assert first.process.poll() is None


def test_a_data_directory_that_is_none(tmp_path: Path):
    file = tmp_path / "file"
    file.write_text("")
    for place in (file, file / "below"):
        refused([str(place)], *SERVE, "--data-dir", str(place), cwd=tmp_path)
    with serving(tmp_path) as service:
        store = f"unix://{tmp_path / 'data' / 'server.sock'}"
        refused([str(file)], *SERVE, "--data-dir", str(file), "--redis-url", store, cwd=tmp_path)
        assert service.process.poll() is None
    assert file.read_text() == ""


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("redis://127.0.0.1:1", ["the store does not answer"]),
        ("redis://user:s3cret@127.0.0.1:1/0", ["the store does not answer"]),
        ("unix:///nowhere/server.sock", ["the store does not answer"]),
        ("http://user:s3cret@127.0.0.1", ["redis://", "unix://"]),
        ("redis://127.0.0.1:s3cret", ["redis://"]),
        ("s3cret", ["redis://"]),
    ],
)
def test_a_store_that_cannot_be_reached(tmp_path: Path, url: str, words: list[str]):
    command = SERVE if len(url) % 2 else ("worker",)
    said = refused(words, *command, "--redis-url", url, cwd=tmp_path)
    assert "s3cret" not in said, "a password is shown to nobody"


def test_a_store_with_other_partitions(tmp_path: Path):
    with serving(tmp_path) as service:
        service.kill()
    data = ("--data-dir", str(tmp_path / "data"))
    refused(["16 partitions"], *SERVE, *data, cwd=tmp_path, SHORTLIST_PARTITIONS="4")
    with serving(tmp_path, data_dir=tmp_path / "data"):
        pass


def test_a_service_that_is_killed_while_it_starts_can_start_again(tmp_path: Path):
    for _ in range(3):
        arguments = [*SERVE, "--data-dir", str(tmp_path / "data")]
        process = ShortlistProcess(tmp_path / "logs", arguments, {})
        process.kill()
    with serving(tmp_path) as service:
        assert service.process.poll() is None


def test_a_data_directory_that_is_made_is_closed_to_others_wherever_the_store_is(tmp_path: Path):
    """Also the folder above that of the index files: `shortlist doctor` looks at it."""
    service.index_folder(tmp_path / "new")
    modes = [stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "new", tmp_path / "new" / "indexes")]
    assert modes == [0o700, 0o700]


@pytest.mark.parametrize("command", [("bench", "slates"), ("reproduce", "table1")])
def test_a_file_that_cannot_be_written_is_named_before_the_work(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], command: tuple[str, str]
):
    for path in (tmp_path / "nowhere" / "x.json", tmp_path):
        with pytest.raises(SystemExit, match="2"):
            main([*command, "--json", str(path)])
        assert f"{path} cannot be written" in capsys.readouterr().err
