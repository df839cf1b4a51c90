"""``shortlist upgrade`` on a store that 2.0.0 has left: what it says, what it refuses, and kills."""

from __future__ import annotations

import random
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.msgpack import encode

from server.cli import main
from shortlist_service.engines import EmbeddedServer
from shortlist_service.errors import Conflict
from shortlist_upgrade.server import connected
from shortlist_upgrade.upgrade import upgrade
from store_clients import connect_sync, flush_sync
from stored_text import content, kept_answers, kept_lines, load

pytestmark = pytest.mark.rest

DROPPED = ("--drop-learners", "shifted")
KILLS = 10
UID = b"0123456789abcdef"
REWARDED_S = 36_500 * 86_400  # the kept store grows old
# Dies by itself before the command of this number.
DYING = """
import os, signal, sys
from shortlist_upgrade.server import Server, connected
from shortlist_upgrade.upgrade import upgrade

class Dying(Server):
    left = int(sys.argv[2])

    def ask(self, *arguments):
        return self.ask_all([arguments])[0]

    def ask_all(self, commands):
        commands = list(commands)
        if len(commands) > self.left:
            super().ask_all(commands[: self.left])
            os.kill(os.getpid(), signal.SIGKILL)
        self.left -= len(commands)
        return super().ask_all(commands)

with connected(sys.argv[1]) as server:
    dying = Dying(server.redis)
    upgrade(dying, reads_only=False, dropped=["shifted"], rewarded_s=int(sys.argv[3]), say=print)
print(dying.left)
"""


@pytest.fixture
def store(store_url: str) -> Iterator[Any]:
    """A server with the store of 2.0.0."""
    with connect_sync(store_url) as client:
        flush_sync(client)
        load(client, kept_lines())
        yield client
        flush_sync(client)


def run(store_url: str, **options: Any) -> list[str]:
    """What is said."""
    said = list[str]()
    with connected(store_url) as server:
        server.refuse_use()
        asked = {"reads_only": False, "dropped": ["shifted"], "rewarded_s": REWARDED_S, **options}
        upgrade(server, say=said.append, **asked)
    return said


def test_a_check_names_each_bandit_and_changes_nothing(store: Any, store_url: str) -> None:
    before = content(store)
    said = dict(line.split(": ", 1) for line in run(store_url, reads_only=True, dropped=[]))
    assert content(store) == before
    assert said["plain"] == "as it is"
    assert said["pooled"].startswith("prior: pooled becomes learned: ")
    assert said["pooled-numbers"].startswith("prior: pooled becomes plain (")
    assert "--drop-learners shifted" in said["shifted"]
    assert "choices change" in said["auto-1"]
    assert "explore is gone" in said["explored"]
    assert "is finished by its map" in said["moving"]
    assert "noted of its keys is deleted" in said["noted"]
    assert len(said) == store.hlen("shortlist:{registry}:bandits")


def test_nothing_of_2_is_left_and_a_second_run_changes_nothing(store: Any, store_url: str) -> None:
    before = content(store)
    run(store_url)
    after = content(store)
    assert {key.partition(b":")[0] for key in after} == {b"shortlist3"}
    identity = b"{registry}:word:identity"
    assert after[b"shortlist3:" + identity] == before[b"shortlist:" + identity]
    assert run(store_url) == ["the store is one of version 3 already: nothing was changed"]
    assert content(store) == after


def test_what_is_gone_is_not_there(store: Any, store_url: str) -> None:
    """The pooled learner, slots of explore, states before moves, notes of plug-ins."""
    before = content(store)
    old = pieces_of(before)
    gone = ("5._pool:", "_pool", ":kept:", ":turns:", f":had:{uid_of(before, b'noted').decode()}")
    assert all(any(word in piece for piece in old) for word in gone)
    run(store_url)
    new = pieces_of(content(store))
    assert [piece for piece in new for word in gone if word in piece] == []


def pieces_of(stored: dict[bytes, Any]) -> set[str]:
    """The keys, and the members of those of hashes and sorted sets."""
    keys = {key.decode("latin-1") for key in stored}
    members = {
        (member if isinstance(member, bytes) else member[0]).decode("latin-1")
        for kind, _, value in stored.values()
        if kind in {"hash", "zset"}
        for member in value
    }
    return keys | members


def test_what_cannot_be_read_stops_it_unless_it_is_dropped(store: Any, store_url: str) -> None:
    before = content(store)
    with pytest.raises(Conflict, match=r"shifted: .*--drop-learners shifted"):
        run(store_url, dropped=[])
    with pytest.raises(Conflict, match="can read the learners of plain"):
        run(store_url, dropped=["shifted", "plain"])
    assert content(store) == before
    run(store_url)
    assert not [key for key in content(store) if b":states:" + uid_of(before, b"shifted") in key]


def test_features_of_catalogues_that_were_left_are_kept(store: Any, store_url: str) -> None:
    """As long as decisions from before the moves can be rewarded."""
    before = content(store)
    uid = before[b"shortlist:{registry}:catalogues"][2][b"shop"][:16]
    run(store_url)
    until_ms = int(content(store)[b"shortlist3:{registry}:left"][2][uid])
    made_ms = 1_000 * kept_answers()["made_s"]
    assert made_ms < until_ms - 1_000 * REWARDED_S - 86_400_000 + 300_000 < made_ms + 300_000


def test_a_quota_that_version_3_does_not_count_stops_it(store: Any, store_url: str) -> None:
    uid = uid_of(content(store), b"quotas").decode()
    store.hset(
        f"shortlist:{{q:{uid}}}:quotas", "two-fields", UID + encode({"most": 1, "filter": {"a": 1, "b": 2}})
    )
    before = content(store)
    with pytest.raises(Conflict, match="quotas: its quotas two-fields count the arms of a filter"):
        run(store_url)
    assert content(store) == before


def uid_of(stored: dict[bytes, Any], bandit: bytes) -> bytes:
    uid: bytes = stored[b"shortlist:{registry}:bandits"][2][bandit][:16]
    return uid


def test_killed_at_any_moment_and_repeated_it_comes_to_the_same(store: Any, store_url: str) -> None:
    counted = killed(store_url, 1_000_000)
    assert counted.returncode == 0, counted.stderr
    commands = 1_000_000 - int(counted.stdout.splitlines()[-1])
    expected = content(store)
    for moment in random.Random(95).sample(range(commands), KILLS):
        flush_sync(store)
        load(store, kept_lines())
        assert killed(store_url, moment).returncode < 0
        assert moment < 100 or store.get("shortlist:{registry}:partitions") in {b"0", None}  # 2.0 refuses it
        run(store_url)
        assert content(store) == expected, moment


def killed(store_url: str, moment: int) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", DYING, store_url, str(moment), str(REWARDED_S)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_it_refuses_a_store_that_is_used(store: Any, store_url: str) -> None:
    seconds, _ = store.time()
    workers = "shortlist:{registry}:workers"
    store.zadd(workers, {"killed": 1_000 * (seconds - 50)})
    with pytest.raises(Conflict, match="younger than a minute"):
        run(store_url)
    store.zadd(workers, {"killed": 1_000 * (seconds - 70)})
    store.zadd("shortlist:{jobs}:alive", {"job": 1_000 * (seconds + 10), "ended": 1_000 * (seconds - 1)})
    with pytest.raises(Conflict, match="younger than a minute"):
        run(store_url)
    store.zrem("shortlist:{jobs}:alive", "job")
    with connect_sync(store_url) as service:
        service.client_setname("shortlist")
        with pytest.raises(Conflict, match="is connected to the store"):
            run(store_url)
        service.client_setname("")
    assert run(store_url)[-1].startswith("done")


@pytest.mark.parametrize(
    ("change", "refusal"),
    [
        (("DEL", "shortlist:{registry}:word:identity"), "0.1 goes over 1.0 or 2.0"),
        (("SET", "shortlist3:{registry}:partitions", "2"), "a service of version 3 was started on it"),
    ],
)
def test_it_refuses_other_stores(store: Any, store_url: str, change: tuple[str, ...], refusal: str) -> None:
    store.execute_command(*change)
    before = content(store)
    with pytest.raises(Conflict, match=refusal):
        run(store_url)
    assert content(store) == before


def test_it_refuses_an_empty_store(store: Any, store_url: str) -> None:
    flush_sync(store)
    with pytest.raises(Conflict, match="there is no store of version 2"):
        run(store_url)


def test_an_embedded_store_is_copied_first(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data_dir = tmp_path / "data"
    with EmbeddedServer(data_dir) as embedded, connect_sync(embedded.url) as client:
        load(client, kept_lines())
        before = content(client)
    assert main(["upgrade", "--data-dir", str(data_dir), *DROPPED]) == 0, capsys.readouterr()
    with EmbeddedServer(data_dir) as embedded, connect_sync(embedded.url) as client:
        after = content(client)
    with EmbeddedServer(data_dir / "store-of-2.x") as embedded, connect_sync(embedded.url) as client:
        assert content(client) == before
    assert main(["upgrade", "--data-dir", str(data_dir), *DROPPED]) == 0
    assert main(["upgrade", "--data-dir", str(tmp_path / "none")]) == 2
    with EmbeddedServer(data_dir) as embedded, connect_sync(embedded.url) as client:
        assert content(client) == after


def test_a_large_store_is_converted_in_parts(store: Any, store_url: str) -> None:
    """Hashes, sorted sets and logs of several thousand parts."""
    partition = "shortlist:{p:1}"
    store.delete(f"{partition}:log", f"{partition}:changes", f"{partition}:seen-until:1")
    store.hset(f"{partition}:seen-until:1", mapping={f"seen-first:{i}": f"{i}.5" for i in range(2_500)})
    store.zadd(f"{partition}:changes", {f"0123456789abcdef{i}": i for i in range(2_500)})
    with connected(store_url) as server:
        fields = ("b", "0123456789abcdef", "l", "ann", "f", "1", "p", b"\x91\xc4\x00")
        server.ask_all([("XADD", f"{partition}:log", f"1-{i}", *fields) for i in range(1, 2_501)])
    run(store_url)
    partition = "shortlist3:{p:1}"
    assert store.hget(f"{partition}:seen-until:1", "seen-first:7") == b"A7.5"
    assert store.hlen(f"{partition}:seen-until:1") == store.zcard(f"{partition}:changes") == 2_500
    assert store.xlen(f"{partition}:log") == 2_500
