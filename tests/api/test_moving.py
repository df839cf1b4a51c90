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


KINDS: list[Json] = [
    {"signals": {"like": {"weight": 1}, "hide": {"weight": -1, "default": 0.25}}},
    {"half_life_s": 60},
    {"context": {"dim": 2}, "interactions": 3, "intercept": True},
]
OTHER_KINDS: list[Json] = [
    {"reward": {"aggregate": "sum"}},
    {"intercept": True, "exploration": "auto", "ridge": "auto", "prior": "learned"},
]
MORE_KINDS: list[Json] = [
    {"reward": {"aggregate": "last"}},
    {"reward": {"wait_s": 600, "default": 0.25}},
    {"context": {"dim": 2}, "signals": {"like": {}, "hide": {}}},
    {"position": {"examination": [1.0, 0.5]}},
    {"idle_ttl_s": 600},
]


@pytest.mark.parametrize(
    "settings",
    [
        *KINDS,
        *(pytest.param(kind, marks=pytest.mark.rest) for kind in OTHER_KINDS),
        *(pytest.param(kind, marks=pytest.mark.slow) for kind in MORE_KINDS),
    ],
    ids="-".join,
)
async def test_bandits_of_every_kind_move_there_and_back(api: Api, store_url: str, settings: Json):
    """Rewards before, between and after: none is lost or counted twice, and the replay finds the states."""
    await api.bandit("b", "old", scope="per_key", **settings)
    asked: Json = {"context": [0.5, -1.0]} if "context" in settings else {}
    signals = [{"signal": "like"}, {"signal": "hide"}] if "signals" in settings else [{}]
    last = settings.get("reward", {}).get("aggregate") == "last"
    late = list[Json]()
    number = 0

    async def play(count: int) -> None:
        nonlocal number
        for _ in range(count):
            choice = await api.choose("b", key=f"u{number % 3}", k=2, **asked)
            rewards = [
                {"decision": choice["decision"], "arm": arm["id"], "value": np.cos(number + place), **signal}
                | ({"at": 1_000 + number} if last else {})
                for place, arm in enumerate(choice["arms"])
                for signal in signals
            ]
            late.extend(rewards[1:])
            assert (await api.reward(rewards[0]))["accepted"] == 1
            number += 1

    await play(6)
    if "reward" in settings and "wait_s" in settings["reward"]:
        await api.count_defaults()
    before = [await api.learner("b", f"u{key}") for key in range(3)]
    answer = await api.ok("POST", MOVE, {"catalogue": "new"})
    assert answer["agreement"] is None or answer["agreement"] > 0.95
    now = [await api.learner("b", f"u{key}") for key in range(3)]
    assert [each["version"] for each in now] == [each["version"] for each in before]
    assert [each["observations"] for each in now] == [each["observations"] for each in before]
    for one, other in zip(before, now, strict=True):
        estimates = (
            OLD @ one["theta"] + one.get("offset", 0.0),
            NEW @ other["theta"] + other.get("offset", 0.0),
        )
        assert np.corrcoef(*estimates)[0, 1] > 0.95
    assert (await api.reward(*late[: len(late) // 2]))["rejected"] == []
    await play(4)
    await carried(api)
    await api.ok("POST", MOVE, {"catalogue": "old", "carry": "map"})
    await play(3)
    assert (await api.reward(*late))["rejected"] == []
    assert (await api.reward(*late))["accepted"] == 0
    await carried(api)
    await api.stored()
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


async def has_moved(api: Api, catalogue: str) -> None:
    async def is_there() -> bool:
        return bool((await api.ok("GET", "/v1/bandits/b"))["catalogue"] == catalogue)

    await wait_until(is_there, what="the process has heard of the move")
