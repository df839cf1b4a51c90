"""A bandit is moved to a catalogue with other features of the same arms, over HTTP."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from api_client import Api, Json, running
from app.learning.replay import compare
from app.quotas.ledger import QuotaLedger
from app.quotas.quotas import Quotas
from app.replication.sync import Sync
from app.storage.moves import MoveStore
from app.storage.registry import RegistryStore
from app.storage.types import CarriedWrite
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
    """(theta, precision) at ridge 1 of what one key was told, with these features."""
    own = [each for each in told if each["key"] == key]
    rows = features[[int(each["arm"][1:]) for each in own]]
    precision = np.eye(features.shape[1]) + rows.T @ rows
    return np.linalg.solve(precision, rows.T @ [each["value"] for each in own]), precision


async def assert_knows(api: Api, features: np.ndarray, told: list[Json], keys: int = 3) -> None:
    for key in (f"u{number}" for number in range(keys)):
        learner = await api.learner("b", key, precision=True)
        theta, precision = posterior(features, told, key)
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


@pytest.mark.rest
async def test_the_same_body_again_is_the_same_answer_and_changes_nothing(api: Api):
    await api.bandit("b", "old", scope="per_key")
    told = await observe(api)
    first = await api.ok("POST", MOVE, {"catalogue": "new", "carry": "map"})
    assert await api.ok("POST", MOVE, {"catalogue": "new", "carry": "map"}) == first
    await carried(api)
    assert await api.ok("POST", MOVE, {"catalogue": "new", "carry": "map"}) == first
    await assert_knows(api, NEW, told)
    assert (await api.ok("GET", "/v1/bandits/b"))["version"] == 2


@pytest.mark.rest
async def test_a_dry_run_tells_the_same_and_changes_nothing(api: Api):
    await api.bandit("b", "old", scope="per_key")
    told, before = await observe(api), await api.stored()
    answer = await api.ok("POST", MOVE, {"catalogue": "new", "dry_run": True})
    assert await api.stored() == before
    await assert_knows(api, OLD, told)
    done = await api.ok("POST", MOVE, {"catalogue": "new"})
    assert {**done, "bandit_version": 1} == answer


@pytest.mark.rest
async def test_decisions_of_before_teach_with_the_features_of_now(api: Api, store_url: str):
    await api.bandit("b", "old", scope="per_key")
    shown = [await api.choose("b", key="u0") for _ in range(4)]
    await api.ok("POST", MOVE, {"catalogue": "new"})
    arms = [choice["arms"][0]["id"] for choice in shown]
    moved = {arm: (NEW[int(arm[1:])] + 1.0).tolist() for arm in arms[:2]}
    await api.put_arms("new", moved)  # as they are when the reward comes
    receipt = await api.reward(*({"decision": choice["decision"], "value": 1} for choice in shown))
    assert receipt["accepted"] == 4
    rows = np.array([moved.get(arm, NEW[int(arm[1:])].tolist()) for arm in arms])
    learner = await api.learner("b", "u0", precision=True)
    np.testing.assert_allclose(learner["precision"], np.eye(D) + rows.T @ rows, atol=1e-6)
    again = await api.reward(*({"decision": choice["decision"], "value": 1} for choice in shown))
    assert (again["accepted"], again["duplicate"]) == (0, 4)
    await carried(api)
    await assert_replay(store_url)


@pytest.mark.rest
async def test_where_the_new_catalogue_lacks_the_arm_it_teaches_with_the_map(api: Api, store_url: str):
    await api.bandit("b", "old", scope="per_key")
    shown = await api.choose("b", key="u0", k=3)
    arms = [arm["id"] for arm in shown["arms"]]
    await api.ok("POST", "/v1/catalogues/new/arms/delete", {"ids": arms})
    answer = await api.ok("POST", MOVE, {"catalogue": "new"})
    assert answer["arms"] == {"common": ARMS - 3, "only_from": 3, "only_to": 0}
    assert any("3 arms" in warning for warning in answer["warnings"])
    await api.reward(*({"decision": shown["decision"], "arm": arm, "value": 1} for arm in arms))
    rows = NEW[[int(arm[1:]) for arm in arms]]  # the map is exact
    learner = await api.learner("b", "u0", precision=True)
    np.testing.assert_allclose(learner["precision"], np.eye(D) + rows.T @ rows, atol=1e-5)
    await carried(api)
    await assert_replay(store_url)


@pytest.mark.rest
async def test_the_old_catalogue_can_be_deleted(api: Api):
    await api.bandit("b", "old", scope="per_key")
    told = await observe(api)
    shown = await api.choose("b", key="u0")
    await api.refused("DELETE", "/v1/catalogues/old", status=409, code="conflict")
    await api.ok("POST", MOVE, {"catalogue": "new"})
    await api.refused("DELETE", "/v1/catalogues/new", status=409, code="conflict")
    await api.ok("DELETE", "/v1/catalogues/old", status=204)
    told.append({"key": "u0", "arm": shown["arms"][0]["id"], "value": 0.5})
    assert (await api.reward({"decision": shown["decision"], "value": 0.5}))["accepted"] == 1
    await assert_knows(api, NEW, told)
    await api.ok("DELETE", "/v1/bandits/b", status=204)
    await api.ok("DELETE", "/v1/catalogues/new", status=204)


KINDS: list[Json] = [
    {"signals": {"like": {"weight": 1}, "hide": {"weight": -1, "default": 0.25}}},
    {"reward": {"aggregate": "sum"}},
    {"prior": "pooled", "half_life_s": 60},
    {"intercept": True, "exploration": "auto", "ridge": "auto", "prior": "learned"},
    {"context": {"dim": 2}, "interactions": 3, "intercept": True},
]
MORE_KINDS: list[Json] = [
    {"reward": {"aggregate": "last"}},
    {"reward": {"wait_s": 600, "default": 0.25}},
    {"shift_rewards": True},
    {"context": {"dim": 2}, "signals": {"like": {}, "hide": {}}},
    {"position": {"examination": [1.0, 0.5]}},
    {"idle_ttl_s": 600},
]


@pytest.mark.parametrize(
    "settings",
    [*KINDS, *(pytest.param(each, marks=pytest.mark.slow) for each in MORE_KINDS)],
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


@pytest.mark.rest
async def test_none_begins_from_nothing(api: Api, store_url: str):
    await api.bandit("b", "old", scope="per_key")
    await observe(api)
    shown = await api.choose("b", key="u0")
    answer = await api.ok("POST", MOVE, {"catalogue": "new", "carry": "none"})
    assert (answer["carry"], answer["map"], answer["agreement"]) == ("none", None, None)
    assert "begin from nothing" in answer["warnings"][0]
    assert (await api.learner("b", "u1"))["observations"] == 0
    await carried(api)
    assert (await api.ok("GET", "/v1/bandits/b/learners"))["items"] == []
    await api.reward({"decision": shown["decision"], "value": 1.0})
    await assert_knows(api, NEW, [{"key": "u0", "arm": shown["arms"][0]["id"], "value": 1.0}])
    await assert_replay(store_url)


@pytest.mark.rest
async def test_features_that_have_nothing_in_common_are_refused_unless_asked_for(api: Api):
    await api.catalogue("other", by_id(UNRELATED))
    await api.bandit("b", "old", scope="per_key")
    told = await observe(api)
    dry = await api.ok("POST", MOVE, {"catalogue": "other", "dry_run": True})
    assert dry["map"]["r2"] < 0.1
    assert "would be refused" in dry["warnings"][0]
    await api.refused("POST", MOVE, {"catalogue": "other"}, status=409, code="too_different")
    await assert_knows(api, OLD, told)
    answer = await api.ok("POST", MOVE, {"catalogue": "other", "carry": "map"})
    assert any("hardly" in warning for warning in answer["warnings"])


@pytest.mark.rest
async def test_what_cannot_be_is_refused_and_changes_nothing(api: Api):
    await api.catalogue("strangers", by_id(NEW, "z"))
    await api.bandit("b", "old", scope="per_key")
    told = await observe(api)
    await api.refused("POST", MOVE, {"catalogue": "nowhere"}, status=404, code="not_found")
    await api.refused("POST", MOVE, {"catalogue": "strangers"}, loc=["body", "catalogue"])
    await api.refused("POST", MOVE, {"catalogue": "old"}, loc=["body", "catalogue"])
    await api.refused("POST", MOVE, {"catalogue": "new", "carry": "log"}, loc=["body", "carry"])
    await api.refused("POST", MOVE, {"catalogue": "new", "carry": "all"}, loc=["body", "carry"])
    await api.refused("POST", MOVE, {"catalogue": "new", "dryrun": True}, loc=["body", "dryrun"])
    await api.refused("POST", "/v1/bandits/x/move", {"catalogue": "new"}, status=404, code="not_found")
    for body in ({"catalogue": "strangers"}, {"catalogue": "old"}, {"catalogue": "new", "carry": "log"}):
        answer = await api.ok("POST", MOVE, {**body, "dry_run": True})
        assert "would be refused" in answer["warnings"][0]
    await assert_knows(api, OLD, told)
    assert (await api.ok("GET", "/v1/bandits/b"))["version"] == 1


@pytest.mark.rest
async def test_learners_that_would_be_too_large_are_refused(api: Api):
    await api.catalogue("wide", {f"a{place}": [1.0] * 250 for place in range(ARMS)})
    await api.bandit("b", "old", scope="per_key", context={"dim": 2})
    document = await api.refused(
        "POST", MOVE, {"catalogue": "wide", "carry": "map"}, loc=["body", "catalogue"]
    )
    assert "the largest interactions that fits is 3" in document["detail"]


@pytest.mark.rest
async def test_another_move_while_learners_are_carried_is_a_conflict(store_url: str, tmp_path: Path):
    """Without a worker nothing is carried; readers carry what they read."""
    async with running(store_url, tmp_path) as api:
        await api.catalogue("old", by_id(OLD))
        await api.catalogue("new", by_id(NEW))
        await api.bandit("b", "old", scope="per_key")
        told = await observe(api)
    async with running(store_url, tmp_path, empty=False, worker=False) as api:
        first = await api.ok("POST", MOVE, {"catalogue": "new"})
        bandit = await api.ok("GET", "/v1/bandits/b")
        assert bandit["move"] == {"from": "old", "to": "new", "carry": "map", "learners": 3, "carried": 0.0}
        await api.refused("POST", MOVE, {"catalogue": "old"}, status=409, code="conflict")
        dry = await api.ok("POST", MOVE, {"catalogue": "old", "dry_run": True})
        assert "would be refused" in dry["warnings"][0]
        assert await api.ok("POST", MOVE, {"catalogue": "new"}) == first
        await assert_knows(api, NEW, told)
        exported = await api.ok("GET", "/v1/bandits/b/learners?include=state")
    async with running(store_url, tmp_path, empty=False) as api:
        await carried(api)
        await assert_knows(api, NEW, told)
        assert await api.ok("GET", "/v1/bandits/b/learners?include=state") == exported
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


@pytest.mark.rest
async def test_quotas_and_frequency_caps_go_on(api: Api):
    await api.bandit("b", "old", scope="per_key", repeats={"most": 1, "within_s": 600})
    for place in range(2):
        await api.ok("PUT", f"/v1/bandits/b/quotas/q{place}", {"arm": f"a{place}", "most": 1}, 201)
    had = {(await api.choose("b", key="u0"))["arms"][0]["id"] for _ in range(10)}
    await api.ok("POST", "/v1/catalogues/new/arms/delete", {"ids": ["a1"]})
    answer = await api.ok("POST", MOVE, {"catalogue": "new"})
    assert any("a1" in warning for warning in answer["warnings"])
    later = [(await api.choose("b", key="u0"))["arms"][0]["id"] for _ in range(ARMS - 1 - len(had))]
    assert not had & set(later)
    assert len(set(later)) == len(later)
    # back to a catalogue that was there before the other: quotas follow its rows again
    await carried(api)
    await api.ok("POST", MOVE, {"catalogue": "old"})
    shown = [arm["id"] for arm in (await api.choose("b", key="u1", k=ARMS))["arms"]]
    assert len(shown) == len({*shown}) >= ARMS - 2
    await api.ok("PUT", "/v1/bandits/b/quotas/q2", {"arm": "a2", "most": 1}, 201)


@pytest.fixture
async def two_processes(store_url: str, tmp_path: Path) -> AsyncIterator[tuple[Api, Api]]:
    """Two processes, and a bandit with a quota on 20 arms, whose rows are others in the new catalogue."""
    arms = {
        name: [
            {
                "id": f"a{place}",
                "features": row.tolist(),
                **({"metadata": {"brand": "x"}} if place < 20 else {}),
            }
            for place, row in enumerate(features)
        ]
        for name, features in (("old", OLD), ("new", NEW))
    }
    async with running(store_url, tmp_path / "one") as api:
        for name, own in arms.items():
            await api.ok("PUT", f"/v1/catalogues/{name}", {"dim": D}, 201)
            await api.ok("PUT", f"/v1/catalogues/{name}/arms", {"arms": own if name == "old" else own[::-1]})
        await api.bandit("b", "old", scope="per_key")
        await api.ok("PUT", "/v1/bandits/b/quotas/q", {"filter": {"brand": "x"}, "most": 30}, 201)
        async with running(store_url, tmp_path / "two", empty=False, worker=False) as other:
            yield api, other


async def has_moved(api: Api, catalogue: str) -> None:
    async def is_there() -> bool:
        return bool((await api.ok("GET", "/v1/bandits/b"))["catalogue"] == catalogue)

    await wait_until(is_there, what="the process has heard of the move")


@pytest.mark.rest
async def test_no_more_is_shown_than_a_quota_allows_while_a_bandit_moves(
    two_processes: tuple[Api, Api], monkeypatch: pytest.MonkeyPatch
):
    """Two processes choose from just before the switch until they have heard of it, there and back."""
    shown, switching, prepare = Counter[str](), asyncio.Event(), Quotas.prepare

    async def about_to_switch(*args: Any) -> None:
        switching.set()
        await prepare(*args)

    monkeypatch.setattr(Quotas, "prepare", about_to_switch)

    async def visit(each: Api, key: str) -> None:
        await switching.wait()
        versions = Counter[int]()
        # five choices of the new version: the other process may still choose by the old one
        while len(versions) < 2 or versions[max(versions)] < 5:
            answer = await each.choose("b", key=key, k=2)
            shown.update(arm["id"] for arm in answer["arms"])
            versions[answer["bandit_version"]] += 1

    for catalogue in ("new", "old"):
        switching.clear()
        visits = [asyncio.create_task(visit(each, f"u{place}")) for place, each in enumerate(two_processes)]
        await two_processes[0].ok("POST", MOVE, {"catalogue": catalogue, "carry": "map"})
        await asyncio.gather(*visits)
        await carried(two_processes[0])
    for each in two_processes:
        shown.update(arm["id"] for arm in (await each.choose("b", key="u2", k=30))["arms"])
    of_quota = sum(count for arm, count in shown.items() if int(arm[1:]) < 20)

    async def is_told() -> Json | None:  # each process tells every second what it has shown
        found: Json = await two_processes[0].ok("GET", "/v1/bandits/b/quotas/q")
        return found if found["used"] >= of_quota else None

    found = await wait_until(is_told, what="all that was shown is counted")
    assert 0 < of_quota <= found["used"] <= 30
    assert found["used"] + found["reserved"] + found["left"] == 30


@pytest.mark.rest
@pytest.mark.parametrize(
    ("owner", "name", "call"),
    [
        (QuotaLedger, "take", "choice"),
        (Quotas, "count_rewards", "reward"),
    ],
    ids=["choice", "reward"],
)
async def test_what_began_before_the_switch_ends_after_it(
    two_processes: tuple[Api, Api], monkeypatch: pytest.MonkeyPatch, owner: type, name: str, call: str
):
    """Meanwhile another choice has followed the quotas to the arms of the new catalogue."""
    api, _ = two_processes
    await api.ok("PUT", "/v1/bandits/b/quotas/r", {"arm": "a3", "most": 9, "counts": "rewarded"}, 201)
    await api.ok("PUT", "/v1/bandits/b/quotas/s", {"arm": "a45", "most": 1}, 201)
    decision = (await api.choose("b", key="u0", k=ARMS))["decision"]
    calls: dict[str, tuple[str, str, Json, int]] = {
        "choice": ("POST", "/v1/bandits/b/choose", {"key": "u1", "k": 5}, 200),
        "reward": (
            "POST",
            "/v1/rewards",
            {"rewards": [{"decision": decision, "arm": "a3", "value": 1.0}]},
            202,
        ),
    }
    begun, go_on, step = asyncio.Event(), asyncio.Event(), getattr(owner, name)

    async def waits(*args: Any, **options: Any) -> Any:
        if not begun.is_set():
            begun.set()
            await go_on.wait()
        return await step(*args, **options)

    monkeypatch.setattr(owner, name, waits)
    method, path, body, status = calls[call]
    old = asyncio.create_task(api.ok(method, path, body, status))
    await begun.wait()
    await api.ok("POST", MOVE, {"catalogue": "new", "carry": "map"})
    assert (await api.choose("b", key="u2"))["bandit_version"] == 2
    go_on.set()
    await old
    shown = (await api.choose("b", key="u3", k=ARMS))["arms"]
    assert len({arm["id"] for arm in shown}) == len(shown) >= 40 - 1


@pytest.mark.rest
async def test_a_quota_on_a_field_that_no_arm_has_is_refused(api: Api):
    await api.ok(
        "PUT",
        "/v1/catalogues/old/arms",
        {"arms": [{"id": "a0", "features": OLD[0].tolist(), "metadata": {"brand": "x"}}]},
    )
    await api.bandit("b", "old", scope="per_key")
    await api.ok("PUT", "/v1/bandits/b/quotas/q", {"filter": {"brand": "x"}, "most": 1}, 201)
    document = await api.refused("POST", MOVE, {"catalogue": "new"}, loc=["body", "catalogue"])
    assert "brand" in document["detail"]


@pytest.mark.rest
async def test_the_log_weighs_arms_by_how_often_they_were_shown(api: Api):
    await api.bandit("b", "old", scope="per_key", log={})
    for number in range(10):
        await api.choose("b", key=f"u{number}")

    async def is_written() -> bool:
        return len((await api.ok("GET", "/v1/bandits/b/log"))["items"]) == 10

    await wait_until(is_written, what="the rows of ten choices")
    answer = await api.ok("POST", MOVE, {"catalogue": "new"})
    assert answer["map"]["shown"] == "log"
    rows = (await api.ok("GET", "/v1/bandits/b/log"))["items"]
    assert len(rows) == 10
    await api.ok("POST", "/v1/bandits/b/log/explain", {"decision": rows[0]["decision"]})
    report = await api.ok("GET", "/v1/bandits/b/report")
    (move,) = report["moves"]
    assert (move["from"], move["to"], report["groups"][0]["decisions"]) == (
        "old",
        "new",
        report["as_of_decisions"],
    )
    assert any("moved from old to new" in words for words in report["warnings"])
    later = await api.ok("GET", f"/v1/bandits/b/report?from={move['time'] + 1}")
    assert "moves" not in later


@pytest.mark.rest
async def test_elimination_begins_again_and_says_so(api: Api):
    await api.bandit("b", "old", policy="linear_elim")
    told = [{"id": f"o{n}", "arm": f"a{n}", "value": 0.5} for n in range(20)]
    await api.observe("b", *told)
    await api.choose("b")
    answer = await api.ok("POST", MOVE, {"catalogue": "new"})
    assert any("elimination begins again" in warning for warning in answer["warnings"])
    assert (await api.choose("b", k=2))["arms"]
    assert (await api.ok("GET", "/v1/bandits/b/learners/_global/sets"))["eliminated"] >= 0


@pytest.mark.rest
async def test_settings_can_be_changed_after_a_move(api: Api):
    await api.bandit("b", "old", scope="per_key", context={"dim": 2}, interactions=2)
    await api.ok("POST", MOVE, {"catalogue": "new"})
    await api.ok("PATCH", "/v1/bandits/b", {"exploration": 0.5})
    choice = await api.choose("b", key="u0", context=[1.0, 0.0])
    assert choice["bandit_version"] == 3
    assert (await api.reward({"decision": choice["decision"], "value": 1.0}))["accepted"] == 1
    await api.refused("PATCH", "/v1/bandits/b", {"catalogue": "old"}, status=409, code="not_changeable")
