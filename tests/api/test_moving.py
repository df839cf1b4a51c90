"""A bandit is moved to a catalogue with other features of the same arms, over HTTP."""

from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from api_client import Api, Json, running
from app.fold.replay import compare
from app.replication.sync import Sync
from app.storage.moves import MoveStore
from app.storage.registry import RegistryStore
from app.storage.types import CarriedWrite
from oracle import ridge_of
from store_server import patient_store
from waiting import wait_until

pytestmark = pytest.mark.anyio

D, ARMS = 4, 60
MOVE = "/v1/bandits/b/move"
RNG = np.random.default_rng(1)
OLD = RNG.normal(size=(ARMS, D))
TURN = np.linalg.qr(RNG.normal(size=(D, D)))[0]
NEW = OLD @ TURN  # turned alone: what learners would have learned here can be computed
UNRELATED = RNG.normal(size=(ARMS, D))


def by_id(features: np.ndarray, prefix: str = "a") -> dict[str, list[float]]:
    return {f"{prefix}{place}": row.tolist() for place, row in enumerate(features)}


@pytest.fixture
async def api(store_url: str, tmp_path: Path) -> AsyncIterator[Api]:
    """An application with two catalogues of the same arms, and no bandit."""
    async with running(store_url, tmp_path) as api:
        await api.catalogue("old", by_id(OLD))
        await api.catalogue("new", by_id(NEW))
        yield api


async def observe(
    api: Api, count: int = 30, *, keys: int = 3, start: int = 0, bandit: str = "b"
) -> list[Json]:
    """Rewards of arms, of several keys, and of all alike."""
    told = [
        {
            "id": f"o{number}",
            "key": f"u{number % keys}",
            "arm": f"a{(7 * number) % ARMS}",
            "value": float(np.sin(number)),
        }
        for number in range(start, start + count)
    ]
    await api.observe(bandit, *told)
    return told


def posterior(features: np.ndarray, told: list[Json], key: str) -> tuple[np.ndarray, np.ndarray]:
    """(precision, theta) at ridge 1 of what one key was told, with these features."""
    own = [each for each in told if each["key"] == key]
    rows = features[[int(each["arm"][1:]) for each in own]]
    return ridge_of(rows, [each["value"] for each in own])


async def assert_knows(api: Api, features: np.ndarray, told: list[Json], keys: int = 3) -> None:
    for key in (f"u{number}" for number in range(keys)):
        learner = await api.learner("b", key, precision=True)
        precision, theta = posterior(features, told, key)
        np.testing.assert_allclose(learner["theta"], theta, atol=1e-6)
        np.testing.assert_allclose(learner["precision"], precision, atol=1e-6)


async def carried(api: Api, bandit: str = "b") -> None:
    async def is_done() -> bool:
        return "move" not in await api.ok("GET", f"/v1/bandits/{bandit}")

    await wait_until(is_done, what="all learners are carried")


async def assert_replay(store_url: str, at_least: int = 1) -> None:
    store = patient_store(store_url)
    await store.open()
    result = await compare(store)
    await store.close()
    assert result.different == []
    assert result.equal >= at_least


async def test_learners_know_in_the_new_catalogue_what_they_knew(api: Api, store_url: str):
    await api.bandit("b", "old", scope="per_key")
    told = await observe(api)
    await assert_knows(api, OLD, told)
    answer = await api.ok("POST", MOVE, {"catalogue": "new"})
    assert answer == {
        "from": "old",
        "to": "new",
        "carry": "map",
        "arms": {"common": ARMS, "only_from": 0, "only_to": 0},
        "map": {"r2": pytest.approx(1.0, abs=1e-6), "shown": "all"},
        "agreement": pytest.approx(1.0, abs=0.05),
        "learners": 3,
        "warnings": answer["warnings"],
        "bandit_version": 2,
    }
    assert "almost wholly" in answer["warnings"][0]
    await assert_knows(api, NEW, told)  # at once, whether or not they are carried
    await carried(api)
    await assert_knows(api, NEW, told)
    bandit = await api.ok("GET", "/v1/bandits/b")
    assert (bandit["catalogue"], bandit["version"]) == ("new", 2)
    assert {arm["id"] for arm in (await api.choose("b", key="u0", k=5))["arms"]} <= by_id(NEW).keys()
    told += await observe(api, 12, start=30)
    await assert_knows(api, NEW, told)
    await assert_replay(store_url, 3)


async def test_of_two_moves_that_are_planned_at_once_the_later_one_is_refused(
    api: Api, store_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    await api.catalogue("third", by_id(UNRELATED))
    await api.bandit("b", "old")
    change = RegistryStore.change_bandit
    async with running(store_url, tmp_path / "two", empty=False, worker=False) as other:

        async def after_the_other(self: RegistryStore, *given: Any, **more: Any) -> bytes | None:
            monkeypatch.setattr(RegistryStore, "change_bandit", change)
            await other.ok("POST", MOVE, {"catalogue": "new", "carry": "none"})
            return await change(self, *given, **more)

        monkeypatch.setattr(RegistryStore, "change_bandit", after_the_other)
        body = {"catalogue": "third", "carry": "none"}
        await api.refused("POST", MOVE, body, status=409, code="conflict")
        assert (await other.ok("GET", "/v1/bandits/b"))["catalogue"] == "new"


async def test_what_others_changed_while_it_was_carried_is_carried_in_the_next_round(
    api: Api, monkeypatch: pytest.MonkeyPatch
):
    await api.bandit("b", "old", scope="per_key")
    told = await observe(api)
    carry, met, written = MoveStore.carry, set[int](), list[int]()

    async def at_the_second_time(
        self: MoveStore, partition: int, uid: str, writes: Sequence[CarriedWrite]
    ) -> int:
        if partition not in met:
            met.add(partition)
            return 0
        written.append(await carry(self, partition, uid, writes))
        return written[-1]

    monkeypatch.setattr(MoveStore, "carry", at_the_second_time)
    await api.ok("POST", MOVE, {"catalogue": "new"})
    await carried(api)
    assert sum(written) == 3
    await assert_knows(api, NEW, told)


async def test_a_process_that_has_not_heard_of_the_move_goes_on(
    store_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """It chooses from the catalogue that it knows, or from the new one once it meets a carried learner."""
    async with running(store_url, tmp_path / "one") as api:
        await api.catalogue("old", by_id(OLD))
        await api.catalogue("new", by_id(NEW))
        await api.bandit("b", "old", scope="per_key")
        told = await observe(api)
        monkeypatch.setattr(Sync, "next_pause_s", lambda self: 600.0)  # it polls only when it must
        async with running(store_url, tmp_path / "two", empty=False, worker=False) as other:
            shown = await other.choose("b", key="u0")
            await api.ok("POST", MOVE, {"catalogue": "new"})
            await carried(api)
            for key in ("u0", "u1", "u2", "u3"):
                assert len((await other.choose("b", key=key, k=3))["arms"]) == 3
            assert (await other.reward({"decision": shown["decision"], "value": 1.0}, wait=False))["accepted"]
            told.append({"key": "u0", "arm": shown["arms"][0]["id"], "value": 1.0})
            await api.stored()
            await assert_knows(api, NEW, told)
    await assert_replay(store_url, 3)
