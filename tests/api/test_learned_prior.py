"""The prior that is learned from the keys of a bandit, over HTTP."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from api_client import Api, Json, running
from shortlist.linear import learned_prior
from shortlist.linear.exploration import (
    exploration_by_evidence,
    exploration_of_dimension,
    exploration_with_prior,
)
from waiting import wait_until

pytestmark = pytest.mark.anyio

D, ARMS, NOISE = 4, 40, 0.3
PRIOR = "/v1/bandits/b/prior"
REFRESH = f"{PRIOR}/refresh"
FEATURES = np.random.default_rng(1).normal(size=(ARMS, D))
MEAN = np.array([1.0, -0.5, 0.0, 2.0])


@pytest.fixture
async def api(store_url: str, tmp_path: Path) -> AsyncIterator[Api]:
    """An application with a catalogue that has arms, and no bandit."""
    async with running(store_url, tmp_path) as api:
        await api.catalogue("c", {f"a{place}": row.tolist() for place, row in enumerate(FEATURES)})
        yield api


async def make(api: Api, name: str = "b", **fields: Any) -> Json:
    """A bandit without an intercept, so that what it knows is computed from the features alone."""
    body = {"catalogue": "c", "policy": "sub_ts", "scope": "per_key", "intercept": False, **fields}
    return await api.ok("PUT", f"/v1/bandits/{name}", body, 201)


def histories(keys: int, rewards: int, *, first: int = 0, seed: int = 0) -> list[Json]:
    """Observations of keys that differ by .5 in each coordinate from ``MEAN``."""
    rng, found = np.random.default_rng(seed), list[Json]()
    for key in range(first, first + keys):
        theta = MEAN + 0.5 * rng.normal(size=D)
        for place in range(rewards):
            arm = int(rng.integers(ARMS))
            value = float(FEATURES[arm] @ theta + NOISE * rng.normal())
            found.append({"id": f"{seed}-{key}-{place}", "key": f"u{key}", "arm": f"a{arm}", "value": value})
    return found


def sums_of(observations: list[Json], key: str) -> tuple[np.ndarray, np.ndarray]:
    """Features and rewards of a key."""
    own = [each for each in observations if each["key"] == key]
    return FEATURES[[int(each["arm"][1:]) for each in own]], np.array([each["value"] for each in own])


def fit_of(observations: list[Json]) -> learned_prior.LearnedPrior:
    """What numpy makes of the observations themselves."""
    keys = sorted({each["key"] for each in observations})
    pairs = [sums_of(observations, key) for key in keys]
    found = learned_prior.fit(
        np.array([x.T @ x for x, _ in pairs]),
        np.array([[x.T @ y] for x, y in pairs]),
        np.array([[[y @ y]] for _, y in pairs]),
        np.array([float(len(y)) for _, y in pairs]),
    )
    assert found is not None
    return found


async def fitted(api: Api, version: int, *, keys: int) -> Json:
    """The prior once it has this version and so many keys: the first may be made before all are folded."""

    async def is_there() -> Json | None:
        found: Json = await api.ok("GET", PRIOR)
        return found if found["version"] >= version and found["keys"] == keys else None

    return await wait_until(is_there, what=f"version {version} of the prior, of {keys} keys") or {}


async def refreshed(api: Api, *, keys: int) -> Json:
    """A version that a call makes: the worker has made its own before, and makes no other one after it."""
    await fitted(api, 1, keys=keys)
    return await api.ok("POST", REFRESH)


# --- the setting ---------------------------------------------------------------------------------------


@pytest.mark.rest
@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, "learned"), ({"ridge": "auto", "exploration": 0.5}, "learned"), ({"half_life_s": 60}, "learned"),
        ({"policy": "softmax"}, "learned"), ({"ridge": 1}, "plain"), ({"exploration": "theory"}, "plain"),
        ({"scope": "global"}, "plain"), ({"policy": "sub_elim"}, "plain"),
        ({"prior": "plain"}, "plain"),
    ],
    ids=str,
)  # fmt: skip
async def test_a_bandit_without_the_setting_has_the_prior_that_it_can_have(
    api: Api, fields: Json, expected: str
):
    assert (await make(api, **fields))["prior"] == expected
    again = {"catalogue": "c", "policy": "sub_ts", "scope": "per_key", "intercept": False, **fields}
    assert (await api.ok("PUT", "/v1/bandits/b", again))["prior"] == expected


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"ridge": 1}, "ridge"), ({"exploration": "theory"}, "theory"), ({"scope": "global"}, "per_key"),
        ({"policy": "linear_elim"}, "linear_elim"),
    ],
    ids=str,
)  # fmt: skip
async def test_what_a_learned_prior_does_not_go_with_is_refused_with_the_reason(
    api: Api, fields: Json, reason: str
):
    body = {"catalogue": "c", "policy": "sub_ts", "scope": "per_key", "prior": "learned", **fields}
    before = await api.stored()
    problem = await api.refused("PUT", "/v1/bandits/b", body, loc=["body", "prior"])
    assert reason in problem["errors"][0]["message"]
    assert await api.stored() == before


async def test_a_company_among_people_has_its_own_unit_and_estimate(api: Api):
    """Its rewards are 100 times as large: in one unit they would decide the noise of all."""
    await make(api, arm_effects="auto")
    await api.observe("b", *histories(12, 20))
    alike = (await api.ok("POST", REFRESH))["noise"]
    company = [
        {**each, "id": f"c-{each['id']}", "key": "company", "value": 100.0 * each["value"]}
        for each in histories(1, 20)
    ]
    await api.observe("b", *company)
    noise = (await api.ok("POST", REFRESH))["noise"]
    run = await api.choose("b", key="company", k=1, dry_run=True)
    people = await api.choose("b", key="u0", k=1, dry_run=True)
    assert noise == pytest.approx(alike, rel=0.2)
    assert run["arms"][0]["estimate"] == pytest.approx(100.0 * people["arms"][0]["estimate"], rel=0.5)


@pytest.mark.rest
async def test_a_bandit_with_a_plain_prior_can_be_given_a_learned_one(api: Api):
    await make(api, prior="plain")
    again = {"catalogue": "c", "policy": "sub_ts", "scope": "per_key", "intercept": False, "prior": "plain"}
    assert (await api.ok("PUT", "/v1/bandits/b", again))["prior"] == "plain"
    await api.refused("GET", PRIOR, status=404, code="not_found")
    await api.refused("POST", REFRESH, status=404, code="not_found")
    await api.observe("b", *histories(20, 10))
    assert (await api.ok("PATCH", "/v1/bandits/b", {"prior": "learned"}))["prior"] == "learned"
    assert (await api.ok("POST", REFRESH))["keys"] == 20
    assert (await api.ok("PATCH", "/v1/bandits/b", {"prior": "plain"}))["prior"] == "plain"
    assert "prior_version" not in await api.choose("b", key="new")


@pytest.mark.rest
@pytest.mark.parametrize("change", [{"ridge": 2}, {"exploration": "theory"}, {"policy": "sub_elim"}], ids=str)
async def test_a_change_that_a_learned_prior_does_not_go_with_makes_it_plain(api: Api, change: Json):
    await make(api)
    assert (await api.ok("PATCH", "/v1/bandits/b", change))["prior"] == "plain"
    back = {"ridge": "auto", "exploration": "auto", "policy": "sub_ts", "prior": None}
    assert (await api.ok("PATCH", "/v1/bandits/b", back))["prior"] == "learned"
    problem = await api.refused(
        "PATCH", "/v1/bandits/b", {**change, "prior": "learned"}, loc=["body", "prior"]
    )
    assert problem["errors"]


# --- versions ------------------------------------------------------------------------------------------


@pytest.mark.rest
async def test_below_five_keys_everything_is_as_with_the_plain_prior(api: Api):
    history = histories(4, 30)
    for name in ("learned", "plain"):
        await make(api, name, prior=name)
        await api.observe(name, *history)
    nothing = await api.ok("POST", "/v1/bandits/learned/prior/refresh")
    assert nothing == {
        "version": 0, "keys": 0, "observations": 0.0, "noise": None, "offset": None, "mean": None, "sd": None,
        "since_ms": None,
    }  # fmt: skip
    for key in ("u1", "new"):
        learned, plain = [await api.learner(name, key, precision=True) for name in ("learned", "plain")]
        assert learned.pop("prior_version") == 0
        assert learned == plain
    used = [(await api.ok("GET", f"/v1/bandits/{name}"))["used"] for name in ("learned", "plain")]
    assert used[0] == used[1]


@pytest.mark.rest
async def test_the_fifth_key_makes_the_first_version_by_itself(api: Api):
    await make(api)
    await api.observe("b", *histories(4, 5))
    assert (await api.ok("POST", REFRESH))["version"] == 0
    await api.observe("b", *histories(1, 5, first=4, seed=1))
    found = await fitted(api, 1, keys=5)
    assert found["observations"] == 25.0
    assert found["mean"] is None, "of fewer than ten keys nobody is told what they like"
    assert found["sd"] is None
    assert "covariance" not in await api.ok("GET", f"{PRIOR}?include=covariance")


async def test_the_prior_is_that_of_all_keys_and_is_in_every_learner(api: Api):
    await make(api)
    history = histories(60, 10)
    await api.observe("b", *history)
    found = await refreshed(api, keys=60)
    expected = fit_of(history)
    whole = await api.ok("GET", f"{PRIOR}?include=covariance")
    assert {**found, "covariance": whole["covariance"]} == whole
    assert (found["version"] >= 1, found["keys"], found["observations"]) == (True, 60, 600.0)
    assert found["mean"] == pytest.approx(expected.mean[0], rel=1e-6)
    assert found["noise"] == pytest.approx(float(np.sqrt(expected.residuals[0, 0])), rel=1e-6)
    covariance = expected.residuals[0, 0] * expected.covariance
    np.testing.assert_allclose(whole["covariance"], covariance, rtol=1e-6)
    np.testing.assert_allclose(np.square(found["sd"]), covariance.diagonal(), rtol=1e-6)
    new = await api.learner("b", "new", precision=True)
    np.testing.assert_allclose(new["theta"], found["mean"], rtol=1e-9)
    features, rewards = sums_of(history, "u7")
    own = await api.learner("b", "u7", precision=True)
    shape = np.linalg.inv(np.array(whole["covariance"]) / found["noise"] ** 2)
    precision = shape + features.T @ features
    np.testing.assert_allclose(own["precision"], precision, rtol=1e-6)
    theta = np.linalg.solve(precision, shape @ found["mean"] + features.T @ rewards)
    np.testing.assert_allclose(own["theta"], theta, rtol=1e-6)
    assert own["prior_version"] == new["prior_version"] == found["version"]
    assert own["used"]["noise"] == new["used"]["noise"] == pytest.approx(found["noise"])
    assert own["used"]["exploration"] == pytest.approx(
        exploration_with_prior(
            exploration_by_evidence(len(found["mean"])), keys=60, variation=expected.variation
        )
    )


@pytest.mark.rest
async def test_a_version_is_made_after_a_tenth_as_many_rewards_more_and_not_before(api: Api):
    await make(api)
    await api.observe("b", *histories(20, 10))
    first = await refreshed(api, keys=20)
    assert first["observations"] == 200.0
    await api.observe("b", *histories(1, 19, first=20, seed=1))
    for _ in range(3):
        await api.app.service._prior_fitting.round()  # private: one round, without waiting for the next
    assert (await api.ok("GET", PRIOR)) == first, "19 rewards more are not a tenth of 200"
    await api.observe("b", *histories(1, 1, first=30, seed=2))
    assert (await fitted(api, first["version"] + 1, keys=22))["observations"] == 220.0


async def test_after_a_key_was_forgotten_the_prior_is_fitted_without_it(api: Api):
    await make(api)
    history = histories(20, 10)
    await api.observe("b", *history)
    whole = await fitted(api, 1, keys=20)
    await api.ok("DELETE", "/v1/bandits/b/learners/u3", status=204)
    found = await fitted(api, whole["version"] + 1, keys=19)
    expected = fit_of([each for each in history if each["key"] != "u3"])
    assert found["mean"] == pytest.approx(expected.mean[0], rel=1e-6)


@pytest.mark.rest
async def test_where_too_few_keys_are_left_there_is_no_prior_any_more(api: Api):
    await make(api)
    await api.observe("b", *histories(5, 10))
    await fitted(api, 1, keys=5)
    await api.ok("DELETE", "/v1/bandits/b/learners/u3", status=204)
    await api.ok("POST", REFRESH)
    assert (await api.ok("GET", PRIOR))["version"] == 0
    assert (await api.choose("b", key="new"))["prior_version"] == 0
    await api.observe("b", *histories(5, 10, first=9, seed=1))
    assert (await api.ok("POST", REFRESH))["version"] >= 3, "numbers never go back"


@pytest.mark.rest
async def test_two_fits_at_a_time_make_versions_one_after_the_other(api: Api):
    await make(api)
    await api.observe("b", *histories(10, 5))
    last = (await fitted(api, 1, keys=10))["version"]
    answers = await asyncio.gather(*(api.ok("POST", REFRESH) for _ in range(3)))
    assert sorted(each["version"] for each in answers) == [last + 1, last + 2, last + 3]


@pytest.mark.rest
async def test_a_fit_that_is_killed_changes_nothing(api: Api, monkeypatch: pytest.MonkeyPatch):
    await make(api)
    await api.observe("b", *histories(10, 5))
    before = await fitted(api, 1, keys=10)
    stored, began = await api.stored(), asyncio.Event()

    async def stuck(*_: object, **__: object) -> None:
        began.set()
        await asyncio.Event().wait()

    monkeypatch.setattr(api.app.service.store.priors, "write", stuck)
    fitting = asyncio.create_task(api.app.service.prior_fits.fit(await api.app.service.bandits.get("b")))
    await began.wait()
    fitting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await fitting
    assert await api.stored() == stored
    assert await api.ok("GET", PRIOR) == before


# --- choices -------------------------------------------------------------------------------------------


async def test_a_new_key_is_shown_what_the_others_liked(api: Api):
    await make(api, exploration=0)
    await api.observe("b", *histories(40, 10))
    found = await refreshed(api, keys=40)
    choice = await api.choose("b", key="new", k=3)
    best = np.argsort(-(FEATURES @ found["mean"]))[:3]
    assert [arm["id"] for arm in choice["arms"]] == [f"a{place}" for place in best]
    assert choice["prior_version"] == found["version"]


@pytest.mark.rest
async def test_the_same_request_on_the_same_version_is_the_same_answer(api: Api):
    await make(api)
    await api.observe("b", *histories(40, 10))
    await refreshed(api, keys=40)

    async def answer() -> Json:
        return await api.choose("b", key="u1", k=5, seed=3, dry_run=True)

    before = await answer()
    assert await answer() == before
    await api.observe("b", *histories(5, 1, first=90, seed=8))
    assert await answer() == before, "rewards of others count from the next version on"
    await api.ok("POST", REFRESH)
    after = await answer()
    assert after["prior_version"] == before["prior_version"] + 1
    assert after["arms"] != before["arms"]


async def test_a_bandit_that_is_changed_chooses_as_it_is_now_by_the_same_version(api: Api):
    await make(api)
    await api.observe("b", *histories(10, 10))
    await refreshed(api, keys=10)
    before = await api.choose("b", key="u1")
    await api.ok("PATCH", "/v1/bandits/b", {"policy": "softmax"})
    after = await api.choose("b", key="u1")
    assert (after["policy"], after["bandit_version"]) == ("softmax", before["bandit_version"] + 1)
    assert after["prior_version"] == before["prior_version"]


async def test_a_dry_run_says_which_part_of_an_estimate_is_the_priors(api: Api):
    await make(api)
    await api.observe("b", *histories(40, 10))
    found = await api.ok("POST", REFRESH)
    own = await api.learner("b", "u1")
    run = await api.choose("b", key="u1", k=ARMS, dry_run=True)
    for arm in run["arms"]:
        features = FEATURES[int(arm["id"][1:])]
        assert arm["prior"] == pytest.approx(features @ found["mean"])
        assert arm["estimate"] == pytest.approx(features @ own["theta"])
    new = await api.choose("b", key="new", k=2, dry_run=True)
    assert all(arm["estimate"] == pytest.approx(arm["prior"]) for arm in new["arms"])
    await make(api, "plain", prior="plain")
    assert "prior" not in (await api.choose("plain", key="u1", dry_run=True))["arms"][0]


@pytest.mark.rest
async def test_an_event_is_answered_with_the_version_that_it_was_chosen_by(api: Api):
    await make(api)
    await api.observe("b", *histories(10, 10))
    await fitted(api, 1, keys=10)
    choice = await api.choose("b", key="u1", event_id="e")
    await api.ok("POST", REFRESH)
    assert await api.choose("b", key="u1", event_id="e") == choice
    assert choice["prior_version"] < (await api.choose("b", key="u1"))["prior_version"]


@pytest.mark.rest
async def test_a_choice_is_explained_by_the_version_that_its_row_names(api: Api):
    await make(api, log={})
    await api.observe("b", *histories(10, 10))
    then = await fitted(api, 1, keys=10)
    choice = await api.choose("b", key="u1", k=3)
    await api.observe("b", *histories(30, 10, first=20, seed=4))
    await api.ok("POST", REFRESH)
    await api.app.service.rows.flush()
    found = await api.ok("POST", "/v1/bandits/b/log/explain", {"decision": choice["decision"]})
    assert (found["changed"], found["repeated"]) == ([], True)
    assert found["row"]["prior_version"] == then["version"] == choice["prior_version"]
    for each in found["candidates"]:
        assert each["prior"] == pytest.approx(FEATURES[int(each["id"][1:])] @ then["mean"])
    now = await api.choose("b", key="u1", dry_run=True)
    assert now["prior_version"] > then["version"], "what serves is the newest version again"


async def decided(api: Api, keys: Sequence[str], *, rewarded: bool = False) -> float:
    """A decision of each, and when the first of them was made. ``rewarded``: by ``MEAN``, before the next."""
    choices = list[Json]()
    for place, key in enumerate(keys):
        choices.append(await api.choose("b", key=key, k=2, seed=place))
        for arm in choices[-1]["arms"] if rewarded else ():
            value = float(FEATURES[int(arm["id"][1:])] @ MEAN)
            await api.reward({"decision": choices[-1]["decision"], "arm": arm["id"], "value": value})
    await api.app.service.rows.flush()
    times = {row["decision"]: row["time"] for row in await api.listed("/v1/bandits/b/log")}
    return float(times[choices[0]["decision"]]) / 1e3


@pytest.mark.rest
async def test_an_evaluation_weighs_decisions_with_the_version_that_they_were_made_by(api: Api):
    """So the policy that made them does them again just as likely, whatever was learned of others since."""
    await make(api, policy="softmax", temperature=0.5, log={})
    await api.observe("b", *histories(20, 10))
    await api.ok("POST", REFRESH)
    await decided(api, ["ann"] * 5, rewarded=True)
    since = await decided(api, ["ann", "new", "newer"] * 10)
    await api.observe("b", *histories(40, 10, first=50, seed=9))
    await api.ok("POST", REFRESH)
    body = {"policy": {}, "estimators": ["ips"], "from": since}
    before = await api.ok("POST", "/v1/bandits/b/evaluations", {**body, "learners": "before"})
    assert before["learners"]["begin"] == "known"
    assert before["support"]["largest_weight"] == pytest.approx(1.0)
    now = await api.ok("POST", "/v1/bandits/b/evaluations", {**body, "learners": "now"})
    assert now["support"]["largest_weight"] > 1.001, "by the version of now they are others"
    plain = {**body, "policy": {"prior": "plain"}, "learners": "before"}
    other = await api.ok("POST", "/v1/bandits/b/evaluations", plain)
    assert other["support"]["largest_weight"] > 1.1


@pytest.mark.rest
async def test_a_learned_prior_can_be_evaluated_on_the_log_of_a_plain_one(api: Api):
    """It is then fitted from what the keys of the log knew before."""
    await make(api, policy="softmax", temperature=0.5, log={}, prior="plain")
    keys = [f"u{place}" for place in range(20)]
    await decided(api, 5 * keys, rewarded=True)
    since = await decided(api, keys)
    body = {"policy": {"prior": "learned"}, "estimators": ["ips"], "learners": "before", "from": since}
    learned = await api.ok("POST", "/v1/bandits/b/evaluations", body)
    same = await api.ok("POST", "/v1/bandits/b/evaluations", {**body, "policy": {}})
    assert same["support"]["largest_weight"] == pytest.approx(1.0)
    assert learned["learners"]["begin"] == same["learners"]["begin"] == "known"
    assert learned["support"]["largest_weight"] != pytest.approx(1.0)


@pytest.mark.rest
async def test_with_an_intercept_the_mean_has_an_offset(api: Api):
    """Every reward is 5 higher: that is what all keys have in common, whatever they like."""
    await make(api, intercept=True)
    await api.observe("b", *({**each, "value": 5.0 + each["value"]} for each in histories(40, 10)))
    found = await api.ok("POST", REFRESH)
    assert (len(found["mean"]), len(found["sd"])) == (D, D)
    assert found["offset"] == pytest.approx(5.0, abs=0.5)
    assert np.linalg.norm(np.array(found["mean"]) - MEAN) < 0.5
    covariance = (await api.ok("GET", f"{PRIOR}?include=covariance"))["covariance"]
    assert np.shape(covariance) == (D + 1, D + 1), "of all numbers of a learner"
    new = await api.learner("b", "new")
    assert new["offset"] == pytest.approx(found["offset"])
    arm = (await api.choose("b", key="new", dry_run=True))["arms"][0]
    expected = FEATURES[int(arm["id"][1:])] @ found["mean"] + found["offset"]
    assert arm["prior"] == pytest.approx(expected)
    assert arm["estimate"] == pytest.approx(expected)


@pytest.mark.rest
async def test_signals_have_one_prior_whatever_their_weights(api: Api):
    await make(api, signals={"click": {}, "buy": {"weight": 3.0}})
    rng = np.random.default_rng(5)
    history = [
        {**each, "values": {"click": value, "buy": 0.5 * value + 0.1 * float(rng.normal())}}
        for each in histories(30, 10)
        for value in [each.pop("value")]
    ]
    await api.observe("b", *history)
    found = await refreshed(api, keys=30)
    assert set(found["signals"]) == {"click", "buy"}
    means = {name: np.array(each["mean"]) for name, each in found["signals"].items()}
    np.testing.assert_allclose(found["mean"], means["click"] + 3.0 * means["buy"], rtol=1e-9)
    assert np.linalg.norm(means["click"] - MEAN) < 0.5
    run = await api.choose("b", key="new", weights={"click": 0.0, "buy": 1.0}, dry_run=True)
    features = FEATURES[int(run["arms"][0]["id"][1:])]
    assert run["arms"][0]["estimate"] == pytest.approx(features @ means["buy"])
    await api.ok("PATCH", "/v1/bandits/b", {"signals": {"like": {"weight": 1.0}}})
    wider = await api.choose("b", key="new", dry_run=True)
    assert wider["prior_version"] == found["version"], "what is new is 0 by the version of before"
    assert wider["arms"][0]["estimate"] == pytest.approx(
        FEATURES[int(wider["arms"][0]["id"][1:])] @ np.array(found["mean"])
    )


@pytest.mark.rest
async def test_a_context_has_a_mean_too(api: Api):
    await make(api, context={"dim": 2})
    history = [{**each, "context": [1.0, float(place % 2)]} for place, each in enumerate(histories(30, 10))]
    await api.observe("b", *history)
    found = await api.ok("POST", REFRESH)
    assert (len(found["mean"]), len(found["sd"]), np.shape(found["weights"])) == (D, D, (D, 2))
    context = [1.0, 0.5]
    run = await api.choose("b", key="new", context=context, dry_run=True)
    features = FEATURES[int(run["arms"][0]["id"][1:])]
    expected = features @ found["mean"] + features @ np.array(found["weights"]) @ context
    assert run["arms"][0]["prior"] == pytest.approx(expected)
    assert run["arms"][0]["estimate"] == pytest.approx(expected)
    # The context explores too: with a prior a bandit explores no more than without one.
    used = (await api.learner("b", "new"))["used"]
    numbers = D + 2 * D
    assert used["exploration"] == min(exploration_by_evidence(numbers), exploration_of_dimension(numbers))
