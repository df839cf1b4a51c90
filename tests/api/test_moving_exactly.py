"""A bandit is moved, and its learners know what those know that had the new features from the start."""

import base64
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from api_client import Api, Json, running
from app.learning.replay import compare
from app.moving.starting_states import Budget
from app.policies.computing import generator
from app.records.records import LearnerState, bytes_to_state
from app.serving import choosing
from app.storage.decision_rows import DecisionRows
from app.storage.types import StoredRows
from store_server import patient_store
from waiting import wait_until

pytestmark = pytest.mark.anyio

D, WIDE, ARMS, KEYS = 4, 6, 40, 4
RNG = np.random.default_rng(2)
OLD = RNG.normal(size=(ARMS, D))
NEW = RNG.normal(size=(ARMS, WIDE))  # nothing that a map could tell
SETTINGS: list[Json] = [
    {},
    {"signals": {"like": {"weight": 1}, "hide": {"weight": -1, "default": 0.25}}},
    {"signals": {"spent": {"aggregate": "sum"}, "like": {"aggregate": "last"}}},
    {"reward": {"aggregate": "sum"}},
    {"reward": {"aggregate": "last"}},
    {"reward": {"wait_s": 600, "default": 0.25}},
    {"half_life_s": 600},  # a second between two decisions changes a thousandth
    {"shift_rewards": True},
    {"intercept": True, "exploration": "auto", "ridge": "auto", "prior": "learned"},
    {"context": {"dim": 2}, "interactions": 2, "intercept": True},
    {"context": {"dim": 2}},
    {"position": {"examination": [0.5]}},
    {"idle_ttl_s": 600},
    {"scope": "global"},
]
QUICK = {0, 1, 5}  # places that `make test` plays
REST = {9, 11}  # that `make test-rest` plays: directions, and places of lists; the others are slow


def of_all_kinds(settings: list[Json]) -> list[Any]:
    return [
        each
        if place in QUICK
        else pytest.param(each, marks=pytest.mark.rest if place in REST else pytest.mark.slow)
        for place, each in enumerate(settings)
    ]


def by_id(features: np.ndarray) -> dict[str, list[float]]:
    return {f"a{place}": row.tolist() for place, row in enumerate(features)}


@pytest.fixture
async def api(store_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Api]:
    """Draws depend on the name of a bandit: here two of them choose alike."""
    monkeypatch.setattr(choosing, "generator", lambda seed, _, key: generator(seed, "b", key))
    async with running(store_url, tmp_path) as api:
        await api.catalogue("old", by_id(OLD))
        await api.catalogue("new", by_id(NEW))
        yield api


class Players:
    """Bandits of the same settings that show the same arms to the same keys, and are rewarded alike."""

    def __init__(self, api: Api, settings: Json) -> None:
        self.api = api
        self.settings = {"scope": "per_key", "log": {}, **settings}
        self.asked: Json = {"context": [0.5, -1.0]} if "context" in settings else {}
        rule = settings.get("reward", {})
        signals = settings.get("signals", {"": rule})
        self.kinds = [
            ({"signal": name} if name else {}, each.get("aggregate", "first"))
            for name, each in signals.items()
        ]
        self.names = list[str]()
        self.number = 0
        self.late = list[list[Json]]()  # of each round those of all bandits

    async def make(self, name: str, catalogue: str) -> None:
        await self.api.bandit(name, catalogue, **self.settings)
        self.names.append(name)

    async def play(self, count: int) -> None:
        """Every third decision is rewarded later."""
        for _ in range(count):
            self.number += 1
            n = self.number
            key = {} if self.settings["scope"] == "global" else {"key": f"u{n % KEYS}"}
            late = list[Json]()
            for name in self.names:
                choice = await self.api.choose(
                    name, rules={"pin": [{"arm": f"a{(7 * n) % ARMS}", "place": 1}]}, **key, **self.asked
                )
                rewards = [
                    {"decision": choice["decision"], "value": round(float(np.cos(n + place)), 3), **signal}
                    | ({"at": 1_700_000_000_000 + n} if kind == "last" else {})
                    for place, (signal, kind) in enumerate(self.kinds)
                ]
                late += rewards if n % 3 == 0 else rewards[1:]
                if n % 3:
                    assert (await self.api.reward(rewards[0]))["rejected"] == []
                for reward, (_, kind) in zip(rewards, self.kinds, strict=True):
                    if n % 3 and kind != "first":
                        more = {"reward_id": "again"} if kind == "sum" else {"at": 1_700_000_100_000 + n}
                        late.append({**reward, "value": 0.5, **more})
            self.late.append(late)

    async def due(self) -> None:
        """The waiting time of all decisions is over."""
        await self.api.due_now()

        async def are_counted() -> bool:
            found = [await self.states(name) for name in self.names]
            counts = {sum(state.sums.observations for state in each.values()) for each in found}
            return counts == {self.number}

        await wait_until(are_counted, what="all defaults are counted")

    async def reward_late(self, share: float = 1.0) -> None:
        count = round(share * len(self.late))
        some, self.late = [each for late in self.late[:count] for each in late], self.late[count:]
        if some:
            receipt = await self.api.reward(*some)
            assert (receipt["accepted"], receipt["rejected"]) == (len(some), [])

    async def states(self, name: str) -> dict[str, LearnerState]:
        found, asked = dict[str, LearnerState](), {"include": "state"}
        while True:
            page = await self.api.ok("GET", f"/v1/bandits/{name}/learners", params=asked)
            for item in page["items"]:
                found[item["key"]] = bytes_to_state(base64.b64decode(item["state"]))
            if page["next"] is None:
                return found
            asked["cursor"] = page["next"]

    async def assert_alike(self, name: str, other: str) -> None:
        """To 1e-9 of the largest number; and the same choices for the same seeds."""
        states, expected = await self.states(name), await self.states(other)
        assert states.keys() == expected.keys()
        for key, state in states.items():
            wanted = expected[key]
            assert (state.version, state.sums.observations) == (wanted.version, wanted.sums.observations)
            scale = weight = 1.0
            if state.half_life_s:  # the decisions were made some milliseconds apart
                weight = wanted.sums.weight / state.sums.weight
            for field in ("total", "more"):
                own, theirs = (
                    getattr(each.sums, field)
                    - getattr(each.sums, "more_error" if field == "more" else "error")
                    for each in (state, wanted)
                )
                own = np.pad(own, (0, max(0, len(theirs) - len(own))))
                theirs = np.pad(theirs, (0, max(0, len(own) - len(theirs))))
                scale = np.abs(theirs).max(initial=1.0)
                tolerance = 1e-9 if not state.half_life_s else 1e-3
                np.testing.assert_allclose(own * weight, theirs, rtol=0.0, atol=tolerance * scale)
            np.testing.assert_allclose(state.sums.squares * weight, wanted.sums.squares, rtol=1e-3)
        if "half_life_s" in self.settings or self.settings.get("prior") == "learned":
            return  # what else they depend on is of other times
        for seed in range(5):
            key = {} if self.settings["scope"] == "global" else {"key": f"u{seed % KEYS}"}
            one, two = [
                await self.api.choose(each, k=3, seed=seed, **key, **self.asked) for each in (name, other)
            ]
            assert [arm["id"] for arm in one["arms"]] == [arm["id"] for arm in two["arms"]]


async def carried(api: Api, bandit: str = "b") -> None:
    async def is_done() -> bool:
        return "move" not in await api.ok("GET", f"/v1/bandits/{bandit}")

    await wait_until(is_done, what="all learners are carried")


async def assert_replay(store_url: str) -> None:
    store = patient_store(store_url)
    await store.open()
    result = await compare(store)
    await store.close()
    assert result.different == []
    assert result.equal > 0


def ids_of(settings: Json) -> str:
    return "-".join(settings) or "plain"


@pytest.mark.parametrize("settings", of_all_kinds(SETTINGS), ids=ids_of)
async def test_learners_are_made_anew_from_the_log(api: Api, store_url: str, settings: Json):
    """Rewards before and after the move, of decisions before it: all as if it had always been there."""
    players = Players(api, settings)
    await players.make("b", "old")
    await players.make("c", "new")
    await players.play(15)
    if "wait_s" in settings.get("reward", {}):
        await players.due()
    await players.reward_late(0.3)
    dry = await api.ok("POST", "/v1/bandits/b/move", {"catalogue": "new", "carry": "log", "dry_run": True})
    answer = await api.ok("POST", "/v1/bandits/b/move", {"catalogue": "new", "carry": "log"})
    assert (answer["carry"], answer["warnings"]) == ("log", dry["warnings"])
    assert "nothing of it is lost" in answer["warnings"][0]
    await players.assert_alike("b", "c")
    await carried(api)
    await players.assert_alike("b", "c")
    await players.reward_late()
    await players.play(4)
    await players.assert_alike("b", "c")
    await api.stored()
    await assert_replay(store_url)


async def test_rewards_that_were_revised_count_for_the_version_of_a_learner_made_from_the_log(api: Api):
    """Versions say which state is newer, so the ones of after the move may not be those of before."""
    await api.bandit("b", "old", log={}, reward={"aggregate": "last"})
    for seed in range(3):
        decision = (await api.choose("b", seed=seed))["decision"]
        for second in range(1 + seed):
            await api.reward({"decision": decision, "value": 0.5, "at": 1_700_000_000_000 + second})
    before = await api.learner("b")
    assert (before["version"], before["observations"]) == (6, 3)
    answer = await api.ok("POST", "/v1/bandits/b/move", {"catalogue": "new", "carry": "log"})
    assert answer["carry"] == "log"
    await carried(api)
    after = await api.learner("b")
    assert (after["version"], after["observations"]) == (6, 3)


async def test_rewards_between_two_pages_of_decisions_count_once(api: Api, monkeypatch: pytest.MonkeyPatch):
    players = Players(api, {"scope": "global"})
    for name, catalogue in (("b", "old"), ("c", "new")):
        await players.make(name, catalogue)
    await players.play(9)
    last, read, was_rewarded = players.late.pop(), DecisionRows.read, False  # of the last decision

    async def by_two(self: DecisionRows, *given: Any, **more: Any) -> StoredRows:
        nonlocal was_rewarded
        if more["after"] and not was_rewarded:
            was_rewarded = True
            await api.reward(*last)
        return await read(self, *given, **{**more, "count": 2})

    monkeypatch.setattr(DecisionRows, "read", by_two)
    await api.ok("POST", "/v1/bandits/b/move", {"catalogue": "new", "carry": "log"})
    assert was_rewarded
    await players.assert_alike("b", "c")
    await carried(api)
    await players.assert_alike("b", "c")


@pytest.mark.rest
async def test_rewards_before_the_rows_were_read_are_not_read_again(
    api: Api, monkeypatch: pytest.MonkeyPatch
):
    """So that those of all bandits before it do not count for the most that may come since."""
    players = Players(api, {})
    await players.make("b", "old")
    await players.play(8)

    async def are_folded() -> bool:
        return sum(state.version for state in (await players.states("b")).values()) == 6

    await wait_until(are_folded, what="the rewards are folded")
    taken = list[int]()
    monkeypatch.setattr(Budget, "take", lambda _, *, rows=0, entries=0: taken.append(entries))
    await api.ok("POST", "/v1/bandits/b/move", {"catalogue": "new", "carry": "log", "dry_run": True})
    assert set(taken) == {0}


@pytest.mark.rest
async def test_auto_takes_the_log_where_it_can_and_says_why_not(api: Api):
    players = Players(api, {})
    await players.make("b", "old")
    await players.play(8)
    dry = await api.ok("POST", "/v1/bandits/b/move", {"catalogue": "new", "dry_run": True})
    assert dry["carry"] == "log"
    await api.observe("b", {"id": "o", "key": "u1", "arm": "a1", "value": 1.0})
    turned = by_id(OLD @ np.linalg.qr(RNG.normal(size=(D, D)))[0])
    await api.catalogue("turned", turned)
    answer = await api.ok("POST", "/v1/bandits/b/move", {"catalogue": "turned"})
    assert answer["carry"] == "map"
    assert any("observations" in words for words in answer["warnings"])


@pytest.mark.rest
@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"log": None}, "no decision log"),
        ({"log": {"share": 0.5}}, "share of 0.5"),
        ({"scope": "global", "policy": "linear_elim"}, "begins again"),
    ],
    ids=["no-log", "share", "elimination"],
)
async def test_what_is_missing_is_said(api: Api, settings: Json, reason: str):
    await api.bandit("b", "old", **{"scope": "per_key", "log": {}, **settings})
    before = await api.stored()
    document = await api.refused(
        "POST", "/v1/bandits/b/move", {"catalogue": "new", "carry": "log"}, loc=["body", "carry"]
    )
    assert reason in document["detail"]
    assert await api.stored() == before


@pytest.mark.rest
@pytest.mark.parametrize("missing", ["observation", "decision", "row", "arm", "state"])
async def test_what_the_log_lacks_is_found(api: Api, missing: str):
    players = Players(api, {} if missing != "decision" else {"log": None})
    if missing == "decision":
        del players.settings["log"]
    await players.make("b", "old")
    await players.play(8)
    reason = "others are observations"
    if missing == "observation":
        await api.observe("b", {"id": "o", "key": "u1", "arm": "a1", "value": 1.0})
    elif missing == "decision":
        await api.ok("PATCH", "/v1/bandits/b", {"log": {}})
        await players.play(2)
    elif missing == "state":
        items = (await api.ok("GET", "/v1/bandits/b/learners?include=state"))["items"]
        await api.ok("PUT", "/v1/bandits/b/learners/u9", {"state": items[0]["state"]}, 201)
    elif missing == "row":
        for key in await api.stored():
            if b":rows:" in key and key.endswith(b"/u1"):
                await api.store.delete(key)
    else:
        await api.ok("POST", "/v1/catalogues/new/arms/delete", {"ids": ["a7"]})
        reason = "lacks the arm a7"
    document = await api.refused(
        "POST", "/v1/bandits/b/move", {"catalogue": "new", "carry": "log"}, loc=["body", "carry"]
    )
    assert reason in document["detail"]
    assert (await api.ok("GET", "/v1/bandits/b"))["catalogue"] == "old"


@pytest.mark.parametrize("settings", of_all_kinds(SETTINGS), ids=ids_of)
async def test_going_back_restores_and_learns_what_came_since(api: Api, store_url: str, settings: Json):
    """``c`` never moved."""
    players = Players(api, settings)
    await players.make("b", "old")
    await players.make("c", "old")
    await players.play(9)
    if "wait_s" in settings.get("reward", {}):
        await players.due()
    await api.ok("POST", "/v1/bandits/b/move", {"catalogue": "new", "carry": "map"})
    await players.reward_late(0.4)
    await players.play(6)
    await carried(api)
    answer = await api.ok("POST", "/v1/bandits/b/move", {"catalogue": "old"})
    assert "before the move of" in answer["warnings"][0]
    await players.assert_alike("b", "c")
    await carried(api)
    await players.reward_late()
    await players.play(3)
    await players.assert_alike("b", "c")
    await api.stored()
    await assert_replay(store_url)


async def test_learners_are_corrected_after_each_of_two_moves(api: Api):
    players = Players(api, {})
    for name, catalogue in (("b", "old"), ("stays", "old"), ("joins", "new")):
        await players.make(name, catalogue)
    await players.play(6)
    for catalogue, other in (("new", "joins"), ("old", "stays")):
        await api.ok("POST", "/v1/bandits/b/move", {"catalogue": catalogue, "carry": "log"})
        await carried(api)
        await players.assert_alike("b", other)


async def test_who_goes_back_keeps_what_an_arm_taught_that_was_not_there_before(api: Api):
    """Its features are mapped as those of states are, with what the map leaves open."""
    extra = RNG.normal(size=WIDE)
    near = np.hstack((OLD, RNG.normal(size=(ARMS, WIDE - D)))) + 0.5 * RNG.normal(size=(ARMS, WIDE))
    await api.catalogue("near", {**by_id(near), "extra": extra.tolist()})
    players = Players(api, {})
    await players.make("b", "old")
    await players.play(8)
    before = (await players.states("b"))["u1"]
    await api.ok("POST", "/v1/bandits/b/move", {"catalogue": "near", "carry": "map"})
    await carried(api)
    await api.observe("b", {"id": "o", "key": "u1", "arm": "extra", "value": 0.5})
    answer = await api.ok("POST", "/v1/bandits/b/move", {"catalogue": "old"})
    assert "before the move of" in answer["warnings"][0]
    await carried(api)
    after = (await players.states("b"))["u1"]
    assert after.version == before.version + 1
    first = await api.ok("GET", "/v1/bandits/b/log/terms")
    assert [each["space"] for each in first["moves"]] == [1], "one a page"
    last = await api.ok("GET", "/v1/bandits/b/log/terms", params={"cursor": first["next"]})
    assert {**last, "moves": 0, "next": 0} == {**first, "moves": 0, "next": 0}
    (move,) = last["moves"]
    assert (move["space"], last["next"]) == (2, None)
    assert move["features"] == WIDE
    mapped, left_open = np.array(move["transform"]) @ extra, np.array(move["residual"])
    assert np.trace(left_open) > 0.01
    added = np.outer(mapped, mapped) + extra @ extra * left_open
    np.testing.assert_allclose(after.sums.gram, before.sums.gram + added, atol=1e-9)
    np.testing.assert_allclose(after.sums.moments[0], before.sums.moments[0] + 0.5 * mapped, atol=1e-9)


@pytest.mark.rest
async def test_what_has_no_space_is_not_kept_and_a_warning_says_so(store_url: str, tmp_path: Path):
    wide = 64  # 40 learners of 34 kB are more than one MB
    features = {name: by_id(RNG.normal(size=(ARMS, wide))) for name in ("old", "new")}
    async with running(store_url, tmp_path, max_moves_mb=1) as api:
        for name, arms in features.items():
            await api.catalogue(name, arms)
        for bandit, keys in (("few", 2), ("many", 40)):
            await api.bandit(bandit, "old", scope="per_key")
            told = [{"id": f"{n}", "key": f"u{n}", "arm": f"a{n % ARMS}", "value": 1.0} for n in range(keys)]
            await api.observe(bandit, *told)
            move = {"catalogue": "new", "carry": "map"}
            dry = await api.ok("POST", f"/v1/bandits/{bandit}/move", {**move, "dry_run": True})
            done = await api.ok("POST", f"/v1/bandits/{bandit}/move", move)
            for answer in (dry, done):
                is_told = any("SHORTLIST_MAX_MOVES_MB" in warning for warning in answer["warnings"])
                assert is_told == (bandit == "many")
            await carried(api, bandit)
            usage = await patient_usage(store_url)
            assert (
                60_000 < usage["moves"] < 600_000
            )  # maps, and the learners of the few: the many have 1.4 MB
            back = await api.ok("POST", f"/v1/bandits/{bandit}/move", {"catalogue": "old", "carry": "map"})
            assert ("before the move" in back["warnings"][0]) == (bandit == "few")


@pytest.mark.rest
async def test_maps_of_moves_take_no_more_than_they_may_until_their_bandits_are_deleted(
    store_url: str, tmp_path: Path
):
    wide = 170  # a map and its residual are 462 kB
    async with running(store_url, tmp_path, max_moves_mb=1) as api:
        for name in ("old", "new"):
            await api.catalogue(name, by_id(RNG.normal(size=(2 * ARMS, wide))))
        for bandit in ("first", "second", "third"):
            await api.bandit(bandit, "old")
        move = {"catalogue": "new", "carry": "map"}
        for bandit in ("first", "second"):
            await api.ok("POST", f"/v1/bandits/{bandit}/move", move)
        assert 2 * 462_000 < (await patient_usage(store_url))["moves"] < 1 << 20
        dry = await api.ok("POST", "/v1/bandits/third/move", {**move, "dry_run": True})
        assert any("SHORTLIST_MAX_MOVES_MB" in warning for warning in dry["warnings"])
        await api.refused("POST", "/v1/bandits/third/move", move, status=429, code="quota_reached")
        await api.ok("DELETE", "/v1/bandits/first", status=204)
        await api.ok("POST", "/v1/bandits/third/move", move)
        await api.refused(
            "POST", "/v1/bandits/third/move", {**move, "catalogue": "old"}, status=409, code="conflict"
        )
        await carried(api, "third")
        await api.ok("POST", "/v1/bandits/third/move", {"catalogue": "old", "carry": "none"})


async def patient_usage(store_url: str) -> Mapping[str, int]:
    store = patient_store(store_url)
    await store.open()
    usage = await store.usage.read()
    await store.close()
    return usage


@pytest.mark.rest
async def test_what_is_kept_of_a_forgotten_learner_goes_with_it(api: Api):
    players = Players(api, {})
    await players.make("b", "old")
    await players.play(8)
    await api.ok("POST", "/v1/bandits/b/move", {"catalogue": "new", "carry": "map"})
    await carried(api)

    async def kept() -> set[bytes]:
        stored = [key for key in await api.stored() if b":kept:" in key]
        return {name for key in stored for name in await api.store.hkeys(key)}

    assert b"u1" in await kept()
    await api.ok("DELETE", "/v1/bandits/b/learners/u1", status=204)
    assert b"u1" not in await kept()
    await api.ok("DELETE", "/v1/bandits/b", status=204)
    assert await kept() == set()


@pytest.mark.rest
async def test_whoever_repeats_the_call_finishes_what_was_begun(
    api: Api, store_url: str, monkeypatch: pytest.MonkeyPatch
):
    """The process was killed between the move and the corrections."""
    players = Players(api, {})
    await players.make("b", "old")
    await players.make("c", "new")
    await players.play(8)

    async def killed(*_: object, **__: object) -> list[str]:
        return []

    with monkeypatch.context() as patched:
        patched.setattr("app.moving.recomputed_sums.RecomputedSums.correct", killed)
        first = await api.ok("POST", "/v1/bandits/b/move", {"catalogue": "new", "carry": "log"})
    await players.play(3)
    assert "move" in await api.ok("GET", "/v1/bandits/b")
    said = await api.refused("POST", "/v1/bandits/b/move", {"catalogue": "old"}, status=409, code="conflict")
    call = 'POST /v1/bandits/b/move with {"catalogue": "new", "carry": "log"} finishes it'
    assert call in said["detail"]

    async def found() -> list[str]:
        findings = (await api.ok("GET", "/v1/status"))["findings"]
        return [each["text"] for each in findings if each["name"] == "move"]

    assert await found() == [], "it may go on still"
    api.app.service.moving.stuck_s = 0.0
    (text,) = await found()
    assert text.endswith(call)
    assert await api.ok("POST", "/v1/bandits/b/move", {"catalogue": "new", "carry": "log"}) == first
    await players.assert_alike("b", "c")
    await carried(api)
    assert await found() == []
    await assert_replay(store_url)
