"""`shortlist dead-letters` and `shortlist replay --check` over a service's store, running or stopped."""

from pathlib import Path

import httpx
import pytest
import redis

from service_process import run, serving
from waiting import wait_until

pytestmark = [pytest.mark.anyio, pytest.mark.rest]

LOG = "shortlist3:{p:0}:log"
FIELDS = {"b": "0123456789abcdef", "l": "ann", "f": "1", "p": b"garbage"}


async def build(http: httpx.AsyncClient) -> None:
    (await http.put("/v1/catalogues/c", json={"dim": 2})).raise_for_status()
    arms = {"arms": [{"id": "a", "features": [1, 2]}, {"id": "b", "features": [2, 0.1]}]}
    (await http.put("/v1/catalogues/c/arms", json=arms)).raise_for_status()
    body = {"catalogue": "c", "policy": "sub_ts", "scope": "per_key"}
    (await http.put("/v1/bandits/b", json=body)).raise_for_status()
    for key in ("ann", "bob"):
        items = [{"id": f"o{i}", "key": key, "arm": "ab"[i % 2], "value": 0.1 * i} for i in range(20)]
        answer = await http.post("/v1/bandits/b/observations?wait=applied", json={"observations": items})
        assert answer.json()["accepted"] == 20


def command(*words: str, folder: Path) -> tuple[int, str]:
    done = run(*words, "--data-dir", str(folder / "data"), cwd=folder)
    return done.returncode, done.stdout or done.stderr


async def test_letters_and_replay_beside_a_running_service_and_without_one(tmp_path: Path):
    with serving(tmp_path) as service:
        store = redis.Redis(unix_socket_path=str(tmp_path / "data" / "server.sock"))
        async with service.client() as http:
            await build(http)
            assert command("dead-letters", "list", folder=tmp_path) == (0, "0 dead letters\n")
            newest = store.xrevrange(LOG, count=1)
            milliseconds, _, number = (newest[0][0].decode() if newest else "1-0").partition("-")
            store.xadd(LOG, FIELDS, id=f"{int(milliseconds) + 1}-{int(number) + 1}")

            async def dead() -> bool:
                return "shortlist_dead_letters 1.0" in (await http.get("/metrics")).text

            await wait_until(dead, what="the entry is a dead letter")
            assert (await http.get("/readyz")).json()["backlog"] == 0
            status, said = command("dead-letters", "list", folder=tmp_path)
            assert (status, said.splitlines()[-1]) == (0, "1 dead letter")
            assert "(deleted bandit)/ann: ValidationError" in said
            status, said = command("replay", "--check", folder=tmp_path)
            assert (status, said) == (
                0,
                "40 entries replayed: 2 learners are equal bit for bit, 0 differ, 0 are older than the log\n",
            )
            assert command("dead-letters", "replay", folder=tmp_path)[0] == 0
            await wait_until(dead, what="it is a dead letter again")
        service.kill()
        store.close()
    assert command("dead-letters", "list", folder=tmp_path)[1].endswith("1 dead letter\n")
    status, said = command("replay", "--check", folder=tmp_path)
    assert (status, said.split(",")[0]) == (0, "40 entries replayed: 2 learners are equal bit for bit")


async def test_a_learner_that_is_not_what_the_log_says_is_named(tmp_path: Path):
    """A bit of one state is flipped behind the service's back."""
    with serving(tmp_path) as service:
        async with service.client() as http:
            await build(http)
        with redis.Redis(unix_socket_path=str(tmp_path / "data" / "server.sock")) as store:
            (key,) = [key for key in store.scan_iter("*states*") if store.hexists(key, "ann")]
            state = bytearray(store.hget(key, "ann") or b"")
            state[-1] ^= 1
            store.hset(key, "ann", bytes(state))
        status, said = command("replay", "--check", folder=tmp_path)
        assert status == 1
        assert "differs: b/ann" in said
        assert "1 learner is equal" in said


def test_a_folder_that_is_none(tmp_path: Path):
    for words in (("dead-letters", "list"), ("replay", "--check")):
        status, said = command(*words, folder=tmp_path)
        assert status == 2
        assert said.startswith("shortlist: there is no data directory")
    assert list(tmp_path.iterdir()) == []
