"""Bandits whose rewards are shifted (section 6.1): what they learn, show and choose, and after a restart."""

from pathlib import Path

import numpy as np
import pytest

from api_client import Api, Json, running
from waiting import wait_until

pytestmark = pytest.mark.anyio

RNG = np.random.default_rng(13)
ARMS = {f"a{i}": [float(x) for x in row] for i, row in enumerate(RNG.uniform(-0.5, 0.5, size=(30, 3)))}
TRUTH, LEVEL = np.array([0.4, -0.2, 0.1]), -0.6
POLICIES = ["sub_ts", "linear_ts", "sub_elim", "linear_elim", "softmax"]


def joint_features(row: list[float]) -> np.ndarray:
    return np.append(np.array(row), 1.0) / np.sqrt(2)


def posterior(rows: list[list[float]], totals: list[float]) -> tuple[np.ndarray, np.ndarray]:
    """Theta' and V' in closed form: one row for each decision, with the sum of its rewards."""
    features = np.array([joint_features(row) for row in rows]).reshape(len(rows), 4)
    precision = np.eye(4) + features.T @ features
    return np.linalg.solve(precision, features.T @ (np.array(totals) / 2 + 0.5)), precision


def assert_learned(learner: Json, rows: list[list[float]], totals: list[float]) -> None:
    theta, precision = posterior(rows, totals)
    np.testing.assert_allclose(learner["precision"], precision, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(learner["theta"], np.sqrt(2) * theta[:-1], rtol=1e-9, atol=1e-12)
    assert learner["offset"] == pytest.approx(np.sqrt(2) * theta[-1] - 1)
    for row in ARMS.values():  # what is shown predicts what the learner predicts, in the scale of rewards
        shown = np.dot(row, learner["theta"]) + learner["offset"]
        assert shown == pytest.approx(2 * joint_features(row) @ theta - 1)


async def build(api: Api, **bandit: object) -> None:
    await api.catalogue("c", ARMS)
    await api.bandit("b", "c", shift_rewards=True, **bandit)


async def reward_all(api: Api, times: int = 30) -> None:
    history: list[Json] = [
        {"id": f"{arm}-{i}", "arm": arm, "value": float(np.dot(row, TRUTH) + LEVEL)}
        for arm, row in ARMS.items()
        for i in range(times)
    ]
    await api.observe("b", *history)


async def test_a_learner_without_rewards_predicts_the_middle(api: Api):
    await build(api, policy="linear_ts", exploration=0.0)
    learner = await api.learner("b", precision=True)
    assert_learned(learner, [], [])
    assert (learner["theta"], learner["offset"]) == ([0.0] * 3, -1.0)
    await api.bandit("plain", "c", policy="linear_ts")
    assert "offset" not in await api.learner("plain")


@pytest.mark.parametrize("aggregate", ["first", "sum"])
async def test_learners_take_rewards_as_the_transformation_says(api: Api, aggregate: str):
    await build(api, policy="linear_ts", reward={"aggregate": aggregate})
    rows, totals = [], []
    for value in (-3.0, 0.5):
        choice = await api.choose("b", seed=int(value * 10) + 99)
        rows.append(ARMS[choice["arms"][0]["id"]])
        for part in ("r0", "r1"):
            await api.reward({"decision": choice["decision"], "value": value / 2, "reward_id": part})
        totals.append(value if aggregate == "sum" else value / 2)
    assert_learned(await api.learner("b", precision=True), rows, totals)


async def test_a_late_reward_replaces_a_default(api: Api):
    await build(api, policy="linear_ts", reward={"wait_s": 0.05, "default": -1.0})
    choice = await api.choose("b", seed=1)
    row = ARMS[choice["arms"][0]["id"]]

    async def defaulted() -> bool:
        return bool((await api.learner("b"))["version"])

    await wait_until(defaulted, what="the default counts")
    assert_learned(await api.learner("b", precision=True), [row], [-1.0])
    await api.reward({"decision": choice["decision"], "value": 0.25})
    assert_learned(await api.learner("b", precision=True), [row], [0.25])


@pytest.mark.rest
@pytest.mark.parametrize("policy", ["sub_ts", "linear_ts"])
async def test_scores_are_in_the_scale_of_rewards_and_the_best_is_first(api: Api, policy: str):
    await build(api, policy=policy, exploration=0.0)
    await reward_all(api)
    learner = await api.learner("b")
    choice = await api.choose("b", k=len(ARMS))
    predicted = {arm: float(np.dot(row, learner["theta"]) + learner["offset"]) for arm, row in ARMS.items()}
    assert [arm["id"] for arm in choice["arms"]] == sorted(predicted, key=lambda arm: -predicted[arm])
    for arm in choice["arms"]:
        assert arm["score"] == pytest.approx(predicted[arm["id"]])
    best = max(ARMS, key=lambda arm: float(np.dot(ARMS[arm], TRUTH)))
    assert choice["arms"][0]["id"] == best
    assert choice["arms"][0]["score"] < 0


@pytest.mark.rest
async def test_softmax_takes_temperatures_in_the_scale_of_rewards(api: Api):
    await build(api, policy="softmax", temperature=0.02)
    await reward_all(api)
    learner = await api.learner("b")
    predicted = {arm: float(np.dot(row, learner["theta"]) + learner["offset"]) for arm, row in ARMS.items()}
    choice = await api.choose("b", k=len(ARMS), seed=1)
    for arm in choice["arms"]:
        assert arm["score"] == pytest.approx(predicted[arm["id"]])
    first = [(await api.choose("b", seed=seed))["arms"][0]["id"] for seed in range(200)]
    weights = {arm: np.exp(value / 0.02) for arm, value in predicted.items()}
    best = max(weights, key=lambda arm: weights[arm])
    share = weights[best] / sum(weights.values())
    # Binomial(200, share), five standard deviations: false alarm below 1e-6; with scores of half the scale
    # the best would be drawn with the share of temperature 0.04.
    assert abs(first.count(best) / 200 - share) < 5 * np.sqrt(share * (1 - share) / 200)
    halved = weights[best] ** 0.5 / sum(weight**0.5 for weight in weights.values())
    assert abs(halved - share) > 5 * np.sqrt(share * (1 - share) / 200)


@pytest.mark.parametrize(
    "policy",
    [{"policy": "softmax", "temperature": "auto"}, {"policy": "igw", "gamma": "auto", "shortlist": 5}],
    ids=["softmax", "igw"],
)
async def test_automatic_scales_are_in_the_scale_of_rewards_and_an_evaluation_has_the_same(
    api: Api, policy: Json
):
    """So a policy that evaluates itself weighs every decision by 1."""
    await build(api, **policy, ridge="auto", log={})
    rng = np.random.default_rng(4)
    history = [
        {"id": f"{arm}-{time}", "arm": arm, "value": rng.uniform(-1, 1)} for arm in ARMS for time in range(3)
    ]
    await api.observe("b", *history)
    choices = [await api.choose("b", seed=seed) for seed in range(20)]
    assert min(choice["arms"][0]["propensity"] for choice in choices) < 0.5, "it tells one scale from another"
    await api.reward(*({"decision": choice["decision"], "value": 0.1} for choice in choices))
    await api.stored()
    body = {"policy": {}, "estimators": ["ips"], "learners": "before"}
    (estimate,) = (await api.ok("POST", "/v1/bandits/b/evaluations", body))["estimates"]
    assert estimate["effective_sample_size"] == pytest.approx(20)


@pytest.mark.rest
@pytest.mark.parametrize("policy", ["sub_elim", "linear_elim"])
async def test_elimination_measures_the_transformed_arms(api: Api, policy: str):
    await build(api, policy=policy, exploration=0.5)
    choice = await api.choose("b", k=3)
    lengths = {arm: float(np.linalg.norm(joint_features(row))) for arm, row in ARMS.items()}
    assert [arm["id"] for arm in choice["arms"]] == sorted(lengths, key=lambda arm: -lengths[arm])[:3]
    await reward_all(api, times=60)
    sets = await api.ok("GET", "/v1/bandits/b/learners/_global/sets")
    assert sets["eliminated"] > 0
    learner = await api.learner("b", precision=True)
    inverse = np.linalg.inv(np.array(learner["precision"]))
    theta = np.append(np.array(learner["theta"]), learner["offset"] + 1) / np.sqrt(2)
    rows = {arm: joint_features(row) for arm, row in ARMS.items()}
    radius = {"linear_elim": 0.5, "sub_elim": 1.0}[policy]  # a stage holds widths up to twice its smallest
    upper = {arm: row @ theta + radius * np.sqrt(row @ inverse @ row) for arm, row in rows.items()}
    for arm in (await api.choose("b", k=sum(stage["size"] for stage in sets["stages"])))["arms"]:
        assert upper[arm["id"]] >= sets["threshold"] - 1e-9


@pytest.mark.rest
@pytest.mark.parametrize("policy", ["sub_elim", "linear_elim"])
async def test_the_radius_is_that_of_rewards_that_differ_by_half_as_much(api: Api, policy: str):
    """By itself it is twice half of what they differ by: 1 where they are from -1 to 1."""
    await build(api, policy=policy, exploration="auto", ridge=1.0, eta=0.1, reward={"min": -1, "max": 1})
    await api.bandit(
        "other",
        "c",
        policy=policy,
        shift_rewards=True,
        exploration=1.0,
        ridge=1.0,
        eta=0.1,
        reward={"min": -1, "max": 1},
    )
    one, other = await api.choose("b", k=3), await api.choose("other", k=3)
    assert [arm["score"] for arm in one["arms"]] == pytest.approx([arm["score"] for arm in other["arms"]])


@pytest.mark.rest
@pytest.mark.parametrize("policy", POLICIES)
async def test_nothing_is_lost_by_a_restart(store_url: str, tmp_path: Path, policy: str):
    async with running(store_url, tmp_path) as api:
        await build(api, policy=policy, exploration=0.3)
        await reward_all(api, times=5)
        learner = await api.learner("b", precision=True)
        choice = await api.choose("b", seed=4, k=2)
        made = await api.ok("GET", "/v1/bandits/b")
        assert made["shift_rewards"] is True
    async with running(store_url, tmp_path, empty=False) as api:
        assert await api.ok("GET", "/v1/bandits/b") == made
        assert await api.learner("b", precision=True) == learner
        again = await api.choose("b", seed=4, k=2)
        assert again["arms"] == choice["arms"]
        await api.reward({"decision": choice["decision"], "arm": choice["arms"][0]["id"], "value": -0.5})
        assert (await api.learner("b"))["version"] == learner["version"] + 1


@pytest.mark.parametrize("bad", ["yes", 1, None])
async def test_it_is_yes_or_no(api: Api, bad: object):
    await api.catalogue("c", ARMS)
    body = {"catalogue": "c", "policy": "sub_ts", "shift_rewards": bad}
    await api.refused("PUT", "/v1/bandits/b", body, loc=["body", "shift_rewards"])
