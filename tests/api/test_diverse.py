"""Lists of different arms over HTTP, against maximal marginal relevance as the paper writes it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest

from api_client import Api, Json
from waiting import wait_until

pytestmark = [pytest.mark.anyio, pytest.mark.rest]

RNG = np.random.default_rng(3)
FEATURES = {f"a{n}": RNG.normal(size=4) for n in range(200)} | {"zero": np.zeros(4)}
MAKERS: dict[str, object] = {
    arm: [f"m{n % 7}", f"m{n % 3}"] if n % 5 == 0 else f"m{n % 7}" for n, arm in enumerate(FEATURES)
}
del MAKERS["a6"]
SEVERAL = {arm: n % 9 for n, arm in enumerate(FEATURES)}
Alike = Callable[[str, str], float]


async def build(api: Api, **bandit: object) -> None:
    await api.ok("PUT", "/v1/catalogues/c", {"dim": 4}, 201)
    rows = [
        {
            "id": arm,
            "features": row.tolist(),
            "metadata": {"one": SEVERAL[arm]} | ({"maker": MAKERS[arm]} if arm in MAKERS else {}),
        }
        for arm, row in FEATURES.items()
    ]
    await api.ok("PUT", "/v1/catalogues/c/arms", {"arms": rows})
    await api.bandit("b", "c", **{"exploration": 0, **bandit})
    await api.observe("b", *({"id": f"o{n}", "arm": f"a{n}", "value": n % 3} for n in range(30)))


def cosine(one: str, other: str) -> float:
    x, y = FEATURES[one], FEATURES[other]
    lengths = float(np.linalg.norm(x) * np.linalg.norm(y))
    return float(x @ y) / lengths if lengths else 0.0


def same(values: dict[str, object]) -> Alike:
    def alike(one: str, other: str) -> float:
        sets = [
            set(values[arm] if isinstance(values[arm], list) else [values[arm]]) if arm in values else set()
            for arm in (one, other)
        ]
        return float(bool(sets[0] & sets[1]))

    return alike


ALIKE: dict[str, Alike] = {"features": cosine, "maker": same(MAKERS), "one": same({**SEVERAL})}


def mmr(
    scores: dict[str, float], k: int, weight: float, alike: Alike, above: Sequence[str] = ()
) -> list[str]:
    """As the paper writes it."""
    best = sorted(scores, key=lambda arm: -scores[arm])[: max(30, 3 * k)]
    low, high = min(scores[arm] for arm in best), max(scores[arm] for arm in best)
    chosen: list[str] = []
    while len(chosen) < min(k, len(best)):
        stands = [*above, *chosen]

        def value(arm: str, stands: Sequence[str] = tuple(stands)) -> float:
            nearest = max((alike(arm, other) for other in stands), default=0.0)
            return (1 - weight) * (scores[arm] - low) / (high - low) - weight * nearest

        chosen.append(max((arm for arm in best if arm not in chosen), key=value))
    return chosen


async def scores_of_all(api: Api, **request: object) -> dict[str, float]:
    answer = await api.choose("b", k=len(FEATURES), **request)
    return {arm["id"]: arm["score"] for arm in answer["arms"]}


def ids(choice: Json) -> list[str]:
    return [arm["id"] for arm in choice["arms"]]


@pytest.mark.parametrize("policy", ["sub_ts", "linear_ts"])
async def test_each_place_is_as_the_paper_says(api: Api, policy: str):
    await build(api, policy=policy, intercept=policy == "linear_ts")
    scores = await scores_of_all(api)
    for weight in [0.0, 0.3, 0.7, 1.0]:
        for over, alike in ALIKE.items():
            rule = {"diverse": {"weight": weight, "over": over}}
            choice = await api.choose("b", k=12, rules=rule)
            assert ids(choice) == mmr(scores, 12, weight, alike)
            assert {arm["id"]: arm["score"] for arm in choice["arms"]} == pytest.approx(
                {arm: scores[arm] for arm in ids(choice)}
            )
            assert ids(await api.choose("b", k=1, rules=rule)) == [max(scores, key=lambda arm: scores[arm])]


async def test_with_pins_filters_exclusions_and_limits(api: Api):
    await build(api, log={})
    request: Json = {"filter": {"one": {"$lt": 6}}, "exclude": ["a1", "a2"]}
    scores = await scores_of_all(api, **request)
    pins = [{"arm": "a8", "place": 2}, {"arm": "a17", "place": 5}]
    scores = {arm: score for arm, score in scores.items() if arm not in {"a8", "a17"}}
    diverse = {"weight": 0.5}
    choice = await api.choose("b", k=6, rules={"pin": pins, "diverse": diverse}, **request)
    expected = mmr(scores, 4, 0.5, cosine, above=["a8", "a17"])
    expected.insert(1, "a8")
    expected.insert(4, "a17")
    assert ids(choice) == expected
    limited = await api.choose(
        "b", k=6, rules={"at_most": [{"field": "one", "count": 1}], "diverse": diverse}, **request
    )
    assert sorted(SEVERAL[arm] for arm in ids(limited)) == [0, 1, 2, 3, 4, 5]

    async def asked() -> Json | None:
        found = await api.call("POST", "/v1/bandits/b/log/explain", {"decision": choice["decision"]})
        return found.json()["asked"] if found.status_code == 200 else None

    assert (await wait_until(asked, what="the row"))["diverse"] == [0.5, "features"]  # type: ignore[index]


async def test_a_list_of_unlike_arms_from_draws(api: Api):
    """Thompson sampling draws as before: the first arm is that of the plain list of the same seed."""
    await build(api, exploration=1)
    for seed in range(20):
        plain = ids(await api.choose("b", k=30, seed=seed))
        diverse = ids(
            await api.choose("b", k=7, seed=seed, rules={"diverse": {"weight": 0.9, "over": "one"}})
        )
        assert diverse[0] == plain[0]
        assert set(diverse) <= set(plain)
        assert len({SEVERAL[arm] for arm in diverse}) == min(7, len({SEVERAL[arm] for arm in plain}))


BAD_RULES: list[tuple[Json, str]] = [
    ({}, "weight"),
    ({"weight": -0.1}, "weight"),
    ({"weight": 1.1}, "weight"),
    ({"weight": True}, "weight"),
    ({"weight": 0.3, "over": ""}, "over"),
    ({"weight": 0.3, "over": "x" * 257}, "over"),
    ({"weight": 0.3, "k": 1}, "k"),
]


async def test_bad_rules_are_refused(api: Api):
    await build(api)
    for rule, field in BAD_RULES:
        body = {"k": 3, "rules": {"diverse": rule}}
        await api.refused("POST", "/v1/bandits/b/choose", body, loc=["body", "rules", "diverse", field])
