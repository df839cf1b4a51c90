"""POST /v1/bandits/{b}/evaluations, against plain computations over the same decisions."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import numpy as np
import pytest

from api_client import Api, Json
from app.bandits.bandit import GLOBAL_LEARNER
from app.decision_log.rows import Row
from app.selection.request import ChooseRequest
from app.selection.selection import SelectionRequest
from app.serving.constraints.base import Constraint, ConstraintRow, View
from logged_rows import MemoryLog, row_of
from waiting import wait_until

pytestmark = [pytest.mark.anyio, pytest.mark.rest]

DIM = 3
FEATURES = np.random.default_rng(11).normal(size=(30, DIM))
ARMS = {f"a{number}": row for number, row in enumerate(FEATURES)}
THETA = np.array([0.8, -0.5, 0.3])
START_MS = 1_700_000_000_000  # 2023-11-14T22:13:20Z
Propensities = Callable[[dict[str, float]], dict[str, float]]


def logged(api: Api, log: MemoryLog) -> MemoryLog:
    """Have evaluations read this log."""
    api.app.service.evaluations.pages = log
    return log


async def create_softmax_bandit(api: Api, name: str, **rest: Any) -> None:
    """A bandit of softmax that has learned something, unless ``rest`` says otherwise."""
    await api.ok("PUT", f"/v1/catalogues/{name}", {"dim": DIM}, 201)
    arms = [
        {"id": arm, "features": row.tolist(), "metadata": {"even": number % 2 == 0}}
        for number, (arm, row) in enumerate(ARMS.items())
    ]
    await api.ok("PUT", f"/v1/catalogues/{name}/arms", {"arms": arms})
    await api.bandit(name, name, **{"policy": "softmax", "temperature": 0.5, "log": {}, **rest})


async def taught(api: Api, name: str, count: int = 12, **rest: Any) -> None:
    rng = np.random.default_rng(5)
    observations = [
        {
            "id": f"o{number}",
            "arm": f"a{number}",
            "value": float(FEATURES[number] @ THETA + rng.normal()),
            **{key: value() if callable(value) else value for key, value in rest.items()},
        }
        for number in range(count)
    ]
    await api.observe(name, *observations)


async def decide(
    api: Api, name: str, count: int, asks: Sequence[Json] = ({},), log: MemoryLog | None = None
) -> MemoryLog:
    """A log with more decisions, each asked for in turn, with rewards for some of their arms."""
    log = logged(api, MemoryLog() if log is None else log)
    rng = np.random.default_rng(len(log.rows) + 3)
    for number in range(len(log.rows), len(log.rows) + count):
        ask = asks[number % len(asks)]
        answer = await api.choose(name, seed=number, **ask)
        rewards = [
            (arm["id"], float(ARMS[arm["id"]] @ THETA + 0.1 * rng.normal()))
            for arm in answer["arms"]
            if rng.random() < 0.8
        ]
        log.excluded[answer["decision"]] = ask.get("exclude", ())
        context = ask.get("context")
        log.rows.append(
            row_of(
                answer,
                *rewards,
                time=START_MS + 1_000 * number,
                key=ask.get("key"),
                filter=ask.get("filter"),
                context=None if context is None else np.array(context, np.float32).tolist(),
            )
        )
    return log


async def evaluate(api: Api, name: str, policy: Json, **rest: Any) -> Json:
    """With what the learners know now, which a test can ask for, unless it says otherwise."""
    body = {"policy": policy, "learners": "now", **rest}
    answer: Json = await api.ok("POST", f"/v1/bandits/{name}/evaluations", body)
    return answer


async def thetas(api: Api, name: str, rows: Sequence[Row]) -> dict[str | None, tuple[np.ndarray, Any, float]]:
    """theta, weights and offset of every learner of the log."""
    found = {}
    for key in {row.key for row in rows}:
        learner = await api.learner(name, key or GLOBAL_LEARNER)
        weights = np.array(learner["weights"]) if learner.get("weights") is not None else None
        found[key] = np.array(learner["theta"]), weights, learner.get("offset") or 0.0
    return found


def is_eligible(arm: str, row: Row, excluded: Sequence[str]) -> bool:
    even = (row.filter or {}).get("even")
    pinned = [each.id for each in row.arms if each.pinned]
    return even in (None, int(arm[1:]) % 2 == 0) and arm not in excluded and arm not in pinned


def boltzmann(temperature: float) -> Propensities:
    def weigh(scores: dict[str, float]) -> dict[str, float]:
        top = max(scores.values())
        weights = {arm: np.exp((score - top) / temperature) for arm, score in scores.items()}
        mass = sum(weights.values())
        return {arm: weight / mass for arm, weight in weights.items()}

    return weigh


async def expected(api: Api, name: str, log: MemoryLog, weigh: Propensities) -> Json:
    """All estimates by one loop over decisions, places and arms."""
    learners = await thetas(api, name, log.rows)
    seen = [0.0, *(reward.value for row in log.rows for reward in row.rewards)]
    seen_low, seen_high = min(seen), max(seen)  # the bandits have no bounds
    places = max(len(row.arms) for row in log.rows)
    w, ips, dr = (np.zeros((len(log.rows), places)) for _ in range(3))
    for i, row in enumerate(log.rows):
        theta, weights, offset = learners[row.key]
        query = theta if row.context is None else theta + weights @ np.array(row.context)
        left = {
            arm: float(features @ query) + offset
            for arm, features in ARMS.items()
            if is_eligible(arm, row, log.excluded[row.decision])
        }
        rewards = {reward.arm: reward.value for reward in row.rewards}
        product = 1.0
        for j in range(places):
            before = product
            if j < len(row.arms):
                arm = row.arms[j]
                score = min(max(float(ARMS[arm.id] @ query) + offset, seen_low), seen_high)
                if arm.pinned:
                    t, mean = 1.0, score
                else:
                    p = weigh(left)
                    t = p.get(arm.id, 0.0)
                    mean = sum(
                        share * min(max(left[other], seen_low), seen_high) for other, share in p.items()
                    )
                    left.pop(arm.id, None)
                product *= t / arm.propensity
                reward = rewards.get(arm.id, 0.0)
                ips[i, j] = product * reward
                dr[i, j] = before * mean + product * (reward - score)
            w[i, j] = product
    return {
        "ips": ips.sum(axis=1).mean(),
        "snips": (ips.sum(axis=0) / w.sum(axis=0)).sum(),
        "dr": dr.sum(axis=1).mean(),
        "size": (w.sum(axis=0) ** 2 / (w**2).sum(axis=0)).min(),
        "weights": w,
    }


def hold(answer: Json, found: Json) -> None:
    for estimate in answer["estimates"]:
        assert estimate["value"] == pytest.approx(found[estimate["estimator"]], rel=1e-9, abs=1e-12)
        assert estimate["effective_sample_size"] == pytest.approx(found["size"])
        low, high = estimate["interval"]
        assert low <= estimate["value"] <= high


ASKS: list[Json] = [{}, {"filter": {"even": True}}, {"exclude": ["a1", "a4", "a9"]}, {"k": 3}]
MIXED: list[Json] = [
    {"k": 3, "filter": {"even": False}, "exclude": ["a1", "a5"]},
    {"k": 2, "rules": {"pin": [{"arm": "a7", "place": 1}]}},
    {"k": 3, "exclude": ["a2"]},
    {},
    {"k": 4, "rules": {"pin": [{"arm": "a3", "place": 2}, {"arm": "a8", "place": 4}]}},
]


@pytest.mark.parametrize(
    ("asks", "rest"), [*(([ask], {}) for ask in ASKS), (MIXED, {}), (MIXED, {"intercept": True})], ids=str
)
async def test_estimates_of_a_softmax_are_those_of_a_plain_loop(shared: Api, asks: list[Json], rest: Json):
    name = f"softmax-{(ASKS.index(asks[0]) if len(asks) == 1 else 'mixed')}-{'-'.join(rest)}"
    await create_softmax_bandit(shared, name, **rest)
    log = await decide(shared, name, 30, asks)
    await taught(shared, name)
    await decide(shared, name, 30, asks, log)
    answer = await evaluate(shared, name, {"temperature": 1.0})
    hold(answer, await expected(shared, name, log, boltzmann(1.0)))
    assert [each["estimator"] for each in answer["estimates"]] == ["ips", "snips", "dr"]
    assert answer["logged"]["decisions"] == 60
    value = np.mean([sum(reward.value for reward in row.rewards) for row in log.rows])
    assert answer["logged"]["value"] == pytest.approx(value)


def greedy(epsilon: float) -> Propensities:
    def weigh(scores: dict[str, float]) -> dict[str, float]:
        best = max(scores, key=scores.__getitem__)
        return {arm: epsilon / len(scores) + (1.0 - epsilon) * (arm == best) for arm in scores}

    return weigh


@pytest.mark.parametrize("epsilon", [0.3, 0.0])
@pytest.mark.parametrize("asks", [[{}], MIXED], ids=["one", "mixed"])
async def test_estimates_of_epsilon_greedy_are_those_of_a_plain_loop(
    shared: Api, asks: list[Json], epsilon: float
):
    name = f"greedy-{len(asks)}-{epsilon}"
    await create_softmax_bandit(shared, name)
    await taught(shared, name)
    log = await decide(shared, name, 60, asks)
    answer = await evaluate(shared, name, {"policy": "epsilon_greedy", "epsilon": epsilon})
    found = await expected(shared, name, log, greedy(epsilon))
    if epsilon:
        hold(answer, found)
    else:
        assert [each["value"] for each in answer["estimates"]] == pytest.approx(
            [found[each["estimator"]] if found["weights"].any() else None for each in answer["estimates"]]
        )


async def test_keys_are_evaluated_by_their_own_learners(shared: Api):
    name = "keys"
    await create_softmax_bandit(shared, name, scope="per_key", prior="plain")
    for key in ("ann", "bob"):
        observations = [
            {"id": f"{key}{n}", "key": key, "arm": f"a{n}", "value": float(n % 3) - (key == "bob")}
            for n in range(8)
        ]
        await shared.observe(name, *observations)
    asks: list[Json] = [{"key": key, "k": 2} for key in ("ann", "bob", "new")]
    log = await decide(shared, name, 45, asks)
    before = shared.app.service.learners.bytes
    answer = await evaluate(shared, name, {"temperature": 0.2, "ridge": 1.0})
    hold(answer, await expected(shared, name, log, boltzmann(0.2)))
    assert shared.app.service.learners.bytes == before


@pytest.mark.parametrize("temperature", [1e-9, pytest.param(1e-4, marks=pytest.mark.slow), 1e-2])
async def test_a_sharp_policy_keeps_its_digits(shared: Api, temperature: float):
    """The first arm of a list has nearly all of the probability, and the others what is left."""
    name = f"sharp-{temperature}".replace(".", "-")
    await create_softmax_bandit(shared, name, temperature=0.05)
    await taught(shared, name)
    log = await decide(shared, name, 200, [{"k": 3}])
    answer = await evaluate(shared, name, {"temperature": temperature})
    found = await expected(shared, name, log, boltzmann(temperature))
    assert found["weights"].max() > 0
    for estimate in answer["estimates"]:
        if np.isfinite(found[estimate["estimator"]]):
            assert estimate["value"] == pytest.approx(found[estimate["estimator"]], rel=1e-9)


SAME: list[tuple[str, Json]] = [
    ("softmax", {"temperature": 0.1}),
    ("igw", {"gamma": 8.0, "shortlist": 4}),
    ("igw", {"gamma": 8.0, "shortlist": 4, "intercept": True}),
    ("igw", {"gamma": 0.0, "shortlist": 2}),
]


@pytest.mark.parametrize(("policy", "rest"), SAME, ids=str)
async def test_a_policy_on_its_own_log_is_what_was_logged(shared: Api, policy: str, rest: Json):
    """Every weight is 1, whatever was asked."""
    name = f"same-{SAME.index((policy, rest))}"
    await create_softmax_bandit(shared, name, **{"policy": policy, "temperature": None, **rest})
    await taught(shared, name)
    log = await decide(shared, name, 60, MIXED)
    answer = await evaluate(shared, name, {})
    assert answer["support"]["largest_weight"] == pytest.approx(1.0, rel=1e-9)
    for estimate in answer["estimates"]:
        assert estimate["effective_sample_size"] == pytest.approx(60)
    ips, snips, _ = answer["estimates"]
    assert ips["value"] == pytest.approx(answer["logged"]["value"], rel=1e-9)
    assert snips["interval"] == pytest.approx(answer["logged"]["interval"], rel=1e-6)
    assert [len(each["places"]) for each in answer["estimates"]] == [4, 4, 4]
    places = [sum(r.value for r in row.rewards if r.arm == row.arms[0].id) for row in log.rows]
    assert ips["places"][0]["value"] == pytest.approx(np.mean(places))


async def test_thompson_sampling_without_exploration_is_exact(shared: Api):
    await create_softmax_bandit(shared, "greedy", intercept=True)
    await taught(shared, "greedy")
    log = await decide(shared, "greedy", 300, [{}, {"exclude": ["a1"]}])

    def weigh(scores: dict[str, float]) -> dict[str, float]:
        return {max(scores, key=lambda arm: scores[arm]): 1.0}

    found = await expected(shared, "greedy", log, weigh)
    for policy in ("sub_ts", "linear_ts"):
        answer = await evaluate(shared, "greedy", {"policy": policy, "exploration": 0.0, "temperature": None})
        hold(answer, found)
        assert not [text for text in answer["warnings"] if "draws" in text]


async def test_thompson_sampling_is_as_often_as_it_draws(shared: Api):
    """Propensities of two arms in a row, against those of many draws from the same posterior."""
    await create_softmax_bandit(shared, "drawn")
    await taught(shared, "drawn")
    log = await decide(shared, "drawn", 40, [{"k": 2}])
    learner = await shared.learner("drawn", precision=True)
    root = np.linalg.cholesky(np.linalg.inv(np.array(learner["precision"])))
    draws = np.array(learner["theta"]) + 0.3 * np.random.default_rng(0).normal(size=(200_000, DIM)) @ root.T
    best = np.argsort(-(draws @ FEATURES.T), axis=1)[:, :2]
    policy = {"policy": "sub_ts", "exploration": 0.3, "temperature": None}
    answer = await evaluate(shared, "drawn", policy, estimators=["ips"])
    w = []
    for row in log.rows:
        pair = [int(arm.id[1:]) for arm in row.arms]
        p = row.arms[0].propensity * row.arms[1].propensity
        w.append(
            [(best[:, 0] == pair[0]).mean() / row.arms[0].propensity, (best == pair).all(axis=1).mean() / p]
        )
    size = min(np.sum(w, axis=0) ** 2 / np.square(w).sum(axis=0))
    (ips,) = answer["estimates"]
    assert ips["effective_sample_size"] == pytest.approx(size, rel=0.25)
    assert any("1,000 draws" in text for text in answer["warnings"])
    assert await evaluate(shared, "drawn", policy, estimators=["ips"]) == answer


async def test_decisions_without_propensities_are_left_out_and_counted(shared: Api):
    await create_softmax_bandit(shared, "mixed-policies")
    log = await decide(shared, "mixed-policies", 20)
    alone = await evaluate(shared, "mixed-policies", {"temperature": 0.3})
    await shared.ok("PATCH", "/v1/bandits/mixed-policies", {"policy": "sub_ts", "temperature": None})
    await decide(shared, "mixed-policies", 5, log=log)
    await shared.ok("PATCH", "/v1/bandits/mixed-policies", {"policy": "softmax"})
    limited = {"k": 2, "rules": {"at_most": [{"field": "even", "count": 1}]}}
    much = {"exclude": [f"{number:x}-{number**7:x}" for number in range(900)]}
    await decide(shared, "mixed-policies", 2, [limited, much], log)
    answer = await evaluate(shared, "mixed-policies", {"policy": "softmax", "temperature": 0.3})
    assert (answer["logged"]["decisions"], answer["logged"]["left_out"]) == (20, 7)
    assert alone["logged"]["left_out"] == 0
    assert any("5 of 27 decisions have no propensities" in text for text in answer["warnings"])
    assert any("2 of 27 decisions were left out" in text for text in answer["warnings"])


async def test_a_holdout_counts_with_its_own_propensities(shared: Api):
    await create_softmax_bandit(shared, "holdouts", holdout={"share": 0.5})
    log = await decide(shared, "holdouts", 60)
    assert {row.group for row in log.rows} == {"policy", "holdout"}
    hold(
        await evaluate(shared, "holdouts", {"temperature": 0.2}),
        await expected(shared, "holdouts", log, boltzmann(0.2)),
    )


async def test_arms_that_are_gone_or_no_longer_let_in_are_never_chosen(shared: Api):
    await create_softmax_bandit(shared, "gone")
    log = await decide(shared, "gone", 40, [{"k": 2}])
    shown = log.rows[0].arms[0].id
    await shared.ok("DELETE", f"/v1/catalogues/gone/arms/{shown}", status=204)
    for row in log.rows:
        log.excluded[row.decision] = [shown]
    found = await expected(shared, "gone", log, boltzmann(0.5))
    log.excluded = {}
    answer = await evaluate(shared, "gone", {})
    for estimate in answer["estimates"]:
        assert estimate["value"] == pytest.approx(found[estimate["estimator"]], rel=1e-9)
    times = sum(shown in [arm.id for arm in row.arms] for row in log.rows)
    assert any(f"{times} of 40 decisions show an arm" in text for text in answer["warnings"])
    answer = await evaluate(shared, "gone", {"filter": {"even": True}})
    odd = sum(any(int(arm.id[1:]) % 2 or arm.id == shown for arm in row.arms) for row in log.rows)
    assert any(f"{odd} of 40 decisions show an arm" in text for text in answer["warnings"])
    await shared.ok("DELETE", "/v1/catalogues/gone/arms/a0", status=204 if shown != "a0" else 404)
    nothing = await evaluate(shared, "gone", {"filter": {"even": 3}})
    assert nothing["support"]["unused_share"] == 1.0
    assert nothing["estimates"][1]["value"] is None


BAD: list[tuple[Json, int, str, list[str | int]]] = [
    ({"policy": {"temperature": -1}}, 422, "invalid", ["body", "policy", "temperature"]),
    ({"policy": {"temperature": "hot"}}, 422, "invalid", ["body", "policy", "temperature"]),
    ({"policy": {"gamma": 3.0}}, 422, "invalid", ["body", "policy", "gamma"]),
    ({"policy": {"polcy": "igw"}}, 422, "invalid", ["body", "policy", "polcy"]),
    ({"policy": {"reward": {"mx": 1}}}, 422, "invalid", ["body", "policy", "reward", "mx"]),
    ({"policy": {"filter": {"a": {"$near": 1}}}}, 422, "invalid", ["body", "policy", "filter", "a", "?"]),
    ({"policy": {"holdout": {"share": 0.1}}}, 422, "invalid", ["body", "policy", "holdout"]),
    ({"policy": {"policy": "best"}}, 422, "invalid", ["body", "policy", "policy"]),
    ({"policy": {"policy": "sub_elim", "temperature": None}}, 422, "invalid", ["body", "policy", "policy"]),
    ({"policy": {"scope": "per_key"}}, 409, "not_changeable", ["body", "policy", "scope"]),
    ({"policy": {"catalogue": None}}, 409, "not_changeable", ["body", "policy", "catalogue"]),
    ({"policy": []}, 422, "invalid", ["body", "policy"]),
    ({"policy": None}, 422, "invalid", ["body", "policy"]),
    ({}, 422, "invalid", ["body", "policy"]),
    ({"policy": {}, "estimators": []}, 422, "invalid", ["body", "estimators"]),
    ({"policy": {}, "estimators": ["ips", "magic"]}, 422, "invalid", ["body", "estimators", 1]),
    ({"policy": {}, "estimators": ["ips", "dr", "ips"]}, 422, "invalid", ["body", "estimators", 2]),
    ({"policy": {}, "from": "2026-01-02", "to": "2026-01-01"}, 422, "invalid", ["body", "from"]),
    ({"policy": {}, "from": "yesterday"}, 422, "invalid", ["body", "from"]),
    ({"policy": {}, "to": {"year": 2026}}, 422, "invalid", ["body", "to"]),
    ({"policy": {}, "to": 1e300}, 422, "invalid", ["body", "to"]),
    ({"policy": {}, "since": 0}, 422, "invalid", ["body", "since"]),
]


@pytest.mark.parametrize(("body", "status", "code", "loc"), BAD, ids=str)
async def test_what_is_wrong_is_named(shared: Api, body: Json, status: int, code: str, loc: list[Any]):
    if "wrong" not in [bandit["id"] for bandit in await shared.listed("/v1/bandits")]:
        await create_softmax_bandit(shared, "wrong")
    log = await decide(shared, "wrong", 3)
    path = "/v1/bandits/wrong/evaluations"
    await shared.refused("POST", path, body, status=status, code=code, loc=loc)
    assert log.begun == 0


async def test_a_log_without_any_propensity_is_refused(shared: Api):
    await create_softmax_bandit(shared, "blind", policy="sub_ts", temperature=None)
    await decide(shared, "blind", 4)
    body = {"policy": {"policy": "softmax"}}
    found = await shared.refused("POST", "/v1/bandits/blind/evaluations", body, loc=["path", "bandit"])
    assert "none of the 4 decisions" in found["detail"]
    await shared.refused("POST", "/v1/bandits/none/evaluations", body, status=404, code="not_found")


class Stuck(MemoryLog):
    """A log that never ends."""

    def __init__(self) -> None:
        super().__init__()
        self.started, self.ended = asyncio.Event(), asyncio.Event()

    async def pages(self, *arguments: Any, **options: Any) -> Any:
        try:
            self.started.set()
            await asyncio.Event().wait()
            yield []
        finally:
            self.ended.set()


async def test_an_evaluation_ends_when_its_client_leaves(shared: Api):
    await create_softmax_bandit(shared, "left")
    log = Stuck()
    logged(shared, log)
    messages = [{"type": "http.request", "body": b'{"policy":{}}', "more_body": False}]

    async def receive() -> Json:
        if messages:
            return messages.pop()
        await log.started.wait()
        return {"type": "http.disconnect"}

    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    path = "/v1/bandits/left/evaluations"
    scope = {"type": "http", "method": "POST", "path": path, "headers": [], "query_string": b""}
    async with asyncio.timeout(30):
        await shared.app(scope, receive, send)
    assert log.ended.is_set()
    assert sent == []


async def test_the_log_of_the_service_is_read(shared: Api):
    """Choices with filters, exclusions, pins and contexts, rewarded over HTTP."""
    await create_softmax_bandit(shared, "real", context={"dim": 2}, filter={"even": {"$exists": True}})
    rng = np.random.default_rng(2)
    await taught(shared, "real", 15, context=lambda: rng.normal(size=2).tolist())
    asks: list[Json] = [
        {**ask, "context": rng.normal(size=2).round(3).tolist()}
        for ask in (*MIXED, {"filter": {"even": True}})
    ]
    log = MemoryLog()
    for number in range(24):
        ask = asks[number % len(asks)]
        answer = await shared.choose("real", **ask, seed=number)
        log.excluded[answer["decision"]] = ask.get("exclude", ())
        arm = answer["arms"][number % len(answer["arms"])]["id"]
        await shared.reward({"decision": answer["decision"], "arm": arm, "value": float(number % 3)})

    async def written() -> bool:
        log.rows = [msgspec.convert(item, Row) for item in await shared.listed("/v1/bandits/real/log")]
        return len(log.rows) == 24 and all(row.rewards for row in log.rows)

    await wait_until(written, what="all rows are in the log")
    shared.app.service.evaluations.pages = shared.app.service.decision_log
    answer = await evaluate(shared, "real", {"temperature": 0.2})
    for place, row in enumerate(log.rows):
        even = next((f for f in (row.filter or {}).get("$and", ()) if f.get("even") in (True, False)), {})
        log.rows[place] = msgspec.structs.replace(row, filter=even)
    hold(answer, await expected(shared, "real", log, boltzmann(0.2)))


async def learned(api: Api, name: str, count: int, changed: dict[str, list[float]]) -> tuple[MemoryLog, Any]:
    """A log of decisions that were rewarded at once, and theta before each. Halfway some arms are changed."""
    log, before, rng = logged(api, MemoryLog()), [], np.random.default_rng(8)
    for number in range(count):
        if number == count // 2:
            arms = [{"id": arm, "features": features} for arm, features in changed.items()]
            await api.ok("PUT", f"/v1/catalogues/{name}/arms", {"arms": arms})
        before.append(np.array((await api.learner(name))["theta"]))
        answer = await api.choose(name, seed=number)
        value = float(rng.normal())
        await api.reward({"decision": answer["decision"], "value": value})
        log.rows.append(row_of(answer, (answer["arms"][0]["id"], value), time=START_MS + 10 * number))
    return log, before


async def test_decisions_are_weighed_with_what_was_known_before_them(shared: Api):
    """Against the learner as it was before each of the twenty blocks, with an arm that changed meanwhile."""
    await create_softmax_bandit(shared, "before")
    changed = {arm: [0.1 * number, 0.2, -0.3] for number, arm in enumerate(list(ARMS)[:15])}
    log, thetas_before = await learned(shared, "before", 40, changed)
    features = np.array([changed.get(arm, row) for arm, row in ARMS.items()])

    def values(first: int, block: int) -> list[float]:
        """By each estimator, of the decisions from ``first`` on, in blocks of that many."""
        w, doubly, rewards = [], [], []
        seen = [each.value for row in log.rows[start:] for each in row.rewards]
        for number, row in enumerate(log.rows[first:], start=first):
            scores = features @ thetas_before[number // block * block]
            policy = np.exp((scores - scores.max()) / 0.8)
            policy /= policy.sum()
            place = list(ARMS).index(row.arms[0].id)
            rewards.append(row.rewards[0].value)
            w.append(policy[place] / row.arms[0].propensity)
            predicted = scores.clip(min(seen), max(seen))  # the bandit has no bounds
            doubly.append(policy @ predicted + w[-1] * (rewards[-1] - predicted[place]))
        return [float(np.mean(np.multiply(w, rewards))), np.dot(w, rewards) / np.sum(w), np.mean(doubly)]

    start = 0
    answer = await evaluate(shared, "before", {"temperature": 0.8}, learners="before")
    assert answer["learners"] == {"when": "before", "begin": "log", "blocks": 20}
    assert (answer["logged"]["decisions"], answer["logged"]["left_out"]) == (38, 2)
    assert not [text for text in answer["warnings"] if "fitted to" in text], "nothing was known before"
    assert [each["value"] for each in answer["estimates"]] == pytest.approx(values(2, 2), rel=1e-9)
    start = 20
    later = {"learners": "before", "from": START_MS + 200}
    of_half = await evaluate(shared, "before", {"temperature": 0.8}, **later)
    assert of_half["learners"] == {"when": "before", "begin": "known", "blocks": 20}
    assert of_half["logged"]["decisions"] == 20
    assert [each["value"] for each in of_half["estimates"]] == pytest.approx(values(20, 1), rel=1e-9)
    body = {"policy": {"temperature": 0.8}}
    assert await shared.ok("POST", "/v1/bandits/before/evaluations", body) == answer  # as if absent
    await taught(shared, "before", 20)
    again = await evaluate(shared, "before", {"temperature": 0.8}, learners="before")
    assert again == answer, "what was learned since changes nothing"
    del log.rows[3]
    of_half = await evaluate(shared, "before", {"temperature": 0.8}, **later)
    assert of_half["learners"] == {"when": "before", "begin": "log", "blocks": 20}
    assert (of_half["logged"]["decisions"], of_half["logged"]["left_out"]) == (19, 1)
    assert any("fitted to this log alone" in text for text in of_half["warnings"])
    answer = await evaluate(shared, "before", {"temperature": 0.8})
    assert answer["learners"] == {"when": "now", "begin": None, "blocks": 0}
    assert any("values may be too high" in text for text in answer["warnings"])


async def test_a_log_of_at_most_rules_alone_is_refused(shared: Api):
    await create_softmax_bandit(shared, "limited")
    await decide(shared, "limited", 4, [{"k": 2, "rules": {"at_most": [{"field": "even", "count": 1}]}}])
    path = "/v1/bandits/limited/evaluations"
    for learners in ("before", "now"):
        body = {"policy": {}, "learners": learners}
        found = await shared.refused("POST", path, body, loc=["path", "bandit"])
        assert "none of the 4 decisions" in found["detail"]
        assert "with the rules at_most and diverse" in found["detail"]
    bad = {"policy": {}, "learners": "then"}
    await shared.refused("POST", path, bad, loc=["body", "learners"])


class Unlogged(Constraint):
    """Leaves out an arm where the request excludes others: what it left is not in the row."""

    async def view(self, choice: ChooseRequest, request: SelectionRequest) -> View:
        return View(exclude=["a0"])


class CountedUnlogged(Unlogged):
    """The same of one that depends on what was shown before."""

    counts = True


@pytest.mark.parametrize("constraint", [Unlogged, CountedUnlogged])
async def test_decisions_are_left_out_to_which_a_constraint_applied_that_no_row_tells_of(
    shared: Api, monkeypatch: pytest.MonkeyPatch, constraint: type[Constraint]
):
    """Evaluations need no change for it; ``monkeypatch``: it is a constraint of this test alone."""
    service, row = shared.app.service, ConstraintRow(constraint(), lambda choice, _: bool(choice.exclude))
    table = (*service.pipeline.constraints, row)
    for each in (service.pipeline, service.evaluations):
        monkeypatch.setattr(each, "constraints", table)
    name = constraint.__name__
    await create_softmax_bandit(shared, name)
    service.evaluations.pages = service.decision_log
    for number in range(10):
        answer = await shared.choose(name, seed=number, **({"exclude": ["a1"]} if number % 2 else {}))
        assert not number % 2 or answer["arms"][0]["id"] not in {"a0", "a1"}

    async def written() -> bool:
        return len(await shared.listed(f"/v1/bandits/{name}/log")) == 10

    await wait_until(written, what="all rows are in the log")
    answer = await evaluate(shared, name, {"temperature": 0.5})
    assert (answer["logged"]["decisions"], answer["logged"]["left_out"]) == (5, 5)


async def test_a_bandit_says_what_cannot_be_evaluated_on_its_log(shared: Api):
    path = "/v1/bandits/said"
    await create_softmax_bandit(shared, "said", policy="sub_ts", temperature=None)
    (text,) = (await shared.ok("GET", path))["warnings"]
    assert 'an evaluation estimates them where it is asked for "propensities": "draws"' in text
    (text,) = (await shared.ok("PATCH", path, {"policy": "linucb"}))["warnings"]
    assert "no policy can be evaluated" in text
    found = await shared.ok("PATCH", path, {"holdout": {"share": 0.1}})
    assert "only the decisions of its holdout" in found["warnings"][0]
    for change in ({"policy": "softmax"}, {"policy": "sub_ts", "log": None}):
        assert "warnings" not in await shared.ok("PATCH", path, change)
        assert "warnings" not in await shared.ok("GET", path)


@pytest.mark.parametrize(("first", "ends"), [(2_000, True), (200, False)])
async def test_an_evaluation_ends_once_too_much_is_missing_whatever_follows(
    shared: Api, first: int, ends: bool
):
    """Of the ``first`` decisions one of fifty is one that the policy would have made; then all are."""
    name = f"lacking-{first}"
    await create_softmax_bandit(shared, name)
    await taught(shared, name)
    log = await decide(shared, name, 1)
    (row,) = log.rows
    ((theta, _, _),) = (await thetas(shared, name, log.rows)).values()
    best, worst = (f"a{number}" for number in (np.argmax(FEATURES @ theta), np.argmin(FEATURES @ theta)))

    def decision(number: int) -> Row:
        is_own = number >= first or number % 50 == 0
        arm = msgspec.structs.replace(row.arms[0], id=best if is_own else worst, propensity=0.9)
        return msgspec.structs.replace(
            row, arms=[arm], rewards=[], time=START_MS + number, decision=f"d{number}"
        )

    log.rows, log.page = [decision(number) for number in range(2_000)], 100
    policy = {"policy": "sub_ts", "exploration": 0.0, "temperature": None}
    answer = await evaluate(shared, name, policy)
    assert (answer["estimates"][0]["value"] is None) == ends
    if ends:
        assert 400 <= answer["logged"]["decisions"] < 700
        assert any("decisions were looked at" in text for text in answer["warnings"])
    else:
        assert answer["logged"]["decisions"] == 2_000
