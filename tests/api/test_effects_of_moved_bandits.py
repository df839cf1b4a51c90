"""Arm effects made again from the decision log, when a bandit moves with ``carry: log``.

What must come out is computed here from the exported reward log: for each key, decision by decision, what a
learner with the new features expects, and of each arm the sums of what is beyond that.
"""

from collections.abc import AsyncIterator, Mapping
from pathlib import Path

import numpy as np
import pytest
import test_arm_effects as effects

from api_client import Api, Json, running
from app.learning.replay import compare
from app.records.records import bytes_to_state
from effect_oracle import Judged, judged, key_moments
from shortlist.linear import ridge_sums
from shortlist.linear.learned_prior import LearnedPrior

pytestmark = [pytest.mark.anyio, pytest.mark.rest]

KEYS, FEATURES = effects.KEYS, effects.FEATURES
# Other columns of the same arms, which no linear map makes of theirs.
NEW = {arm: np.array([row[1], row[0] - row[2], row @ row, 1.0]) for arm, row in FEATURES.items()}
LIKE = {"like": {"weight": 1.0}, "buy": {"weight": 2.0, "default": 0.5}}
RULES = [
    {},
    {"position": {"examination": [0.5]}},
    {"half_life_s": 3_600},
    {"reward": {"aggregate": "sum"}},
    {"signals": LIKE},
]


@pytest.fixture
async def api(store_url: str, tmp_path: Path) -> AsyncIterator[Api]:
    async with running(store_url, tmp_path) as api:
        await api.catalogue("c", {arm: row.tolist() for arm, row in FEATURES.items()})
        await api.catalogue("d", {arm: row.tolist() for arm, row in NEW.items()})
        yield api


async def learned(api: Api, fields: Json) -> None:
    """A bandit whose arms have effects, and whose log has all that it knows."""
    more: Json = {"signal": "like"} if "signals" in fields else {}
    await effects.make(api, **fields)
    for rounds in (2, 4, 2):
        choices = await effects.play(api, rounds, **more)
        if "reward" in fields:
            for choice in choices[::3]:
                again = {"decision": choice["decision"], "arm": choice["arms"][0]["id"], "value": 0.5}
                await api.reward({**again, "reward_id": "again"})
        await api.ok("POST", effects.REFRESH, {})
    await api.app.service.rows.flush()


async def move(api: Api) -> LearnedPrior:
    """The learned prior that the move was made with."""
    service = api.app.service
    before = await service.priors.newest(service.bandits.by_name("b").uid)
    moved = await api.ok("POST", "/v1/bandits/b/move", {"catalogue": "d", "carry": "log"})
    assert (moved["carry"], len(moved["warnings"])) == ("log", 1)
    bandit = service.bandits.by_name("b")
    version = await service.priors.version(bandit.uid, 1 + (before.number if before else 0))
    assert version is not None
    assert version.learned is not None
    return version.learned


def surprises(
    decisions: list[Judged], learned: LearnedPrior, key: str, signals: int, half_life_s: float
) -> list[tuple[Json, float, np.ndarray]]:
    """Entry, p, and the surprise of each signal, of the decisions of a key that teach arms."""
    found, ids = list[tuple[Json, float, np.ndarray]](), dict[tuple[int, str], list[Judged]]()
    for each in decisions:
        if each.entry["key"] == key:
            ids.setdefault((each.entry["decided"], each.entry["id"]), []).append(each)
    rows, values, times = np.zeros((0, 4)), np.zeros((0, signals)), list[int]()
    for decided, _ in sorted(ids):
        own = ids[decided, _]
        age = (np.array(times) - max(times, default=0)) / 1_000.0
        weights = 0.5 ** (-age / half_life_s) if half_life_s else np.ones(len(times))
        sums = ridge_sums.empty(4)
        if times:
            value = values if signals > 1 else values[:, 0]
            sums = ridge_sums.of(rows, value, np.ones(len(times), dtype=bool), weights)
        theta = learned.known(sums).thetas if signals > 1 else learned.posterior(sums).theta[None]
        expected = np.zeros((signals, 4))
        expected[: len(theta)] = theta
        for each in own:
            p, y = each.entry["examined"] or 1.0, np.zeros(signals)
            y[: len(each.values)] = each.values
            served, x = each.entry["effect"], NEW[each.entry["arm"]]
            if each.entry["expected"] is not None:
                # As a token has it: float32.
                found.append((each.entry, p, y - p * (expected @ x).astype(np.float32)))
            rows = np.vstack((rows, p * x))
            values = np.vstack((values, y - (0.0 if served is None else p * np.array(served))))
            times.append(decided)
    return found


def sums_of(
    decisions: list[Judged], learned: LearnedPrior, keys: list[str], *, signals: int, half_life_s: float
) -> Mapping[str, np.ndarray]:
    """n, F, R and Q of each arm."""
    found = [each for key in keys for each in surprises(decisions, learned, key, signals, half_life_s)]
    newest, sums = dict[str, int](), dict[str, np.ndarray]()
    for entry, _, _ in found:
        newest[entry["arm"]] = max(entry["decided"], newest.get(entry["arm"], 0))
    for entry, p, rho in found:
        arm, w = entry["arm"], 1.0
        if half_life_s:
            w = 0.5 ** ((newest[arm] - entry["decided"]) / 1_000.0 / half_life_s)
        own = np.concatenate(([w * p**2, (w * p**2) ** 2], w * p * rho, (w * p * rho) ** 2))
        sums[arm] = sums.get(arm, 0.0) + own
    return sums


@pytest.mark.parametrize("fields", RULES, ids=lambda each: next(iter(each), "plain"))
async def test_sums_of_arms_are_made_again_from_the_log(api: Api, fields: Json):
    signals, half_life_s = len(fields.get("signals", "1")), fields.get("half_life_s", 0.0)
    await learned(api, fields)
    decisions = judged(await effects.entries_of(api))
    prior = await move(api)
    found = await effects.stored_sums(api, half_life_s)
    keys = [f"u{key}" for key in range(KEYS)]
    wanted = sums_of(decisions, prior, keys, signals=signals, half_life_s=half_life_s)
    assert found.keys() == wanted.keys()
    for arm, own in wanted.items():
        np.testing.assert_allclose(found[arm], own, rtol=1e-9, atol=1e-9, err_msg=arm)
    assert found
    if not half_life_s:
        await effects.check_rebuilt(api, found)
        for key in keys:  # of rewards less the effects of then
            state = await api.call(
                "GET",
                f"/v1/bandits/b/learners/{key}",
                headers={"accept": "application/octet-stream"},
            )
            moments = bytes_to_state(state.content).sums.with_signals(signals).moments
            own = key_moments(decisions, NEW, key, signals=signals)
            np.testing.assert_allclose(moments, own, rtol=1e-9, atol=1e-9)
    assert not (await compare(api.app.service.store)).different


async def test_what_a_forgotten_key_taught_goes_out_of_sums_that_were_made_again(api: Api):
    await learned(api, {})
    decisions = judged(await effects.entries_of(api))
    prior = await move(api)
    choice = await api.choose("b", key="u1", k=1)
    await api.reward({"decision": choice["decision"], "value": 2.0})
    before = await effects.stored_sums(api)
    await api.call("DELETE", "/v1/bandits/b/learners/u0")
    await api.stored()
    after, alone = await effects.stored_sums(api), {"signals": 1, "half_life_s": 0.0}
    taken = sums_of(decisions, prior, ["u0"], **alone)
    assert taken
    for arm, own in before.items():
        left = own - taken.get(arm, 0.0)
        np.testing.assert_allclose(after.get(arm, np.zeros(4)), left, rtol=1e-9, atol=1e-9)
    await effects.check_rebuilt(api, after)
    assert not (await compare(api.app.service.store)).different
