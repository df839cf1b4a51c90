"""/v1/slates: a whole campaign over HTTP, and everything that can be wrong with one."""

from __future__ import annotations

import numpy as np
import pytest

from api_client import Api, Json
from oracle import ridge_of

pytestmark = [pytest.mark.anyio, pytest.mark.rest]

ARMS = [f"a{i}" for i in range(8)]
MEANS = dict(zip(ARMS, np.linspace(0.0, 2.1, 8), strict=True))
FIELDS = {
    "id", "state", "observed", "best", "estimates", "bounds", "progress", "outside", "warnings", "guarantee",
    "k", "arms", "method", "allocation", "bound", "noise_range", "noise_std", "independent_noise", "rules",
    "catalogue", "metadata",
}  # fmt: skip


async def make(api: Api, name: str, status: int = 201, **rest: object) -> Json:
    body = {"id": name, "arms": ARMS, "k": 3, "epsilon": 0.5, "noise_std": 0.3, "seed": 1, **rest}
    answer: Json = await api.ok(
        "POST", "/v1/slates", {k: v for k, v in body.items() if v is not None}, status
    )
    return answer


async def ask(api: Api, name: str, count: int) -> list[Json]:
    pulls: list[Json] = (await api.ok("POST", f"/v1/slates/{name}/ask", {"count": count}))["pulls"]
    return pulls


async def tell(api: Api, name: str, results: list[Json]) -> Json:
    answer: Json = await api.ok("POST", f"/v1/slates/{name}/tell", {"results": results})
    return answer


def totals(pulls: list[Json], rng: np.random.Generator, noise: float = 0.3) -> list[Json]:
    return [
        {"pull": p["pull"], "total": sum(MEANS[a] for a in p["slate"]) + noise * rng.standard_normal()}
        for p in pulls
    ]


async def finish(api: Api, name: str, rng: np.random.Generator) -> Json:
    for _ in range(200):
        told = await tell(api, name, totals(await ask(api, name, 100), rng))
        if told["done"]:
            break
    answer: Json = await api.ok("GET", f"/v1/slates/{name}")
    return answer


@pytest.mark.parametrize(
    ("method", "allocation"),
    [("saqm", "uniform"), ("sa_foa", "g"), ("icb", "uniform"), ("icb", "g"), ("exhaustive", "uniform")],
)
async def test_a_campaign_finds_the_best_slate(shared: Api, method: str, allocation: str):
    name = f"{method}-{allocation}"
    made = await make(shared, name, method=method, allocation=allocation)
    assert set(made) == FIELDS
    assert (made["state"], made["observed"], made["best"], made["estimates"]) == ("sampling", 0, [], {})
    assert made["bounds"] == {"lower": None, "upper": None}
    done = await finish(shared, name, np.random.default_rng(1))
    assert done["state"] == "done"
    assert done["best"] == ["a7", "a6", "a5"], "the best first"
    assert done["bounds"]["lower"] <= sum(MEANS[a] for a in done["best"]) <= done["bounds"]["upper"]
    assert set(done["estimates"]) == set(ARMS)
    assert done["guarantee"] == {"kind": "pac", "epsilon": 0.5, "delta": 0.05}
    assert done["progress"]["excess"] <= 0.5
    assert (done["progress"]["more_pulls"], done["progress"]["next_look"]) == (0, None)
    assert done["warnings"] == []
    assert await ask(shared, name, 10) == []
    assert await shared.ok("GET", f"/v1/slates/{name}") == done


async def test_results_come_late_repeated_out_of_order_or_never(shared: Api):
    await make(shared, "order")
    rng = np.random.default_rng(2)
    pulls = await ask(shared, "order", 60)
    assert len({p["pull"] for p in pulls}) == 60
    assert all(len(set(p["slate"])) == 3 and set(p["slate"]) <= set(ARMS) for p in pulls)
    results = totals(pulls, rng)[::-1]
    told = await tell(shared, "order", results[:10])
    assert told == {"observed": 10, "duplicate": 0, "done": False, "outside": 0}
    told = await tell(shared, "order", [*results[5:15], results[12]])
    assert (told["observed"], told["duplicate"]) == (5, 6)
    assert (await shared.ok("GET", "/v1/slates/order"))["observed"] == 15
    later = totals(await ask(shared, "order", 60), rng)
    await tell(shared, "order", later)
    view = await shared.ok("GET", "/v1/slates/order")
    assert view["observed"] == 75
    assert view["progress"]["asked"] == 120
    assert view["progress"]["looked_at"] <= 75
    assert view["progress"]["more_pulls"] >= 0


async def test_listed(api: Api):
    for name in ("b", "a", "c"):
        await make(api, name)
    assert await api.listed("/v1/slates", limit=2) == [{"id": "a"}, {"id": "b"}, {"id": "c"}]


async def test_too_many_arms_or_pulls_are_too_large(shared: Api):
    await make(shared, "large")
    body = {"id": "larger", "arms": [f"x{i}" for i in range(1_001)], "k": 3, "noise_std": 0.3}
    await shared.refused("POST", "/v1/slates", body, status=413, code="too_large")
    results = [{"pull": "x", "total": 0.0}] * 10_001
    await shared.refused("POST", "/v1/slates/large/tell", {"results": results}, status=413, code="too_large")
    await shared.refused("POST", "/v1/slates/large/ask", {"count": 10_001}, loc=["body", "count"])


async def test_an_unknown_pull_is_named_and_the_others_are_not_taken(shared: Api):
    await make(shared, "unknown")
    await make(shared, "neighbour")
    pulls = await ask(shared, "unknown", 3)
    foreign = (await ask(shared, "neighbour", 1))[0]["pull"]
    own = pulls[0]["pull"]
    for bad in (foreign, own[:-1] + "3", own[:-1] + "00", "x", own + " ", "\u0660"):
        results = [{"pull": own, "total": 1.0}, {"pull": bad, "total": 1.0}]
        loc = ["body", "results", 1, "pull"]
        await shared.refused("POST", "/v1/slates/unknown/tell", {"results": results}, loc=loc)
    assert (await shared.ok("GET", "/v1/slates/unknown"))["observed"] == 0


async def test_totals_that_the_range_forbids_are_taken_counted_and_warned_of(shared: Api):
    await make(shared, "wild", noise_std=None, noise_range=0.01, epsilon=0.001)
    rng = np.random.default_rng(3)
    results = totals(await ask(shared, "wild", 64), rng, noise=0.001)
    assert (await tell(shared, "wild", results[:60]))["outside"] == 0
    told = await tell(shared, "wild", [{**r, "total": r["total"] + 5.0} for r in results[60:]])
    assert (told["observed"], told["outside"]) == (4, 4)
    view = await shared.ok("GET", "/v1/slates/wild")
    assert (view["observed"], view["outside"]) == (64, 4)
    assert "noise_range" in view["warnings"][0]


FEATURES = {arm: [1.0, float(i), float(i * i % 5)] for i, arm in enumerate(ARMS)}


async def finished(api: Api, name: str) -> Json:
    await make(api, name)
    return await finish(api, name, np.random.default_rng(8))


async def test_warm_start_gives_a_learner_all_that_the_totals_of_a_finished_campaign_say(api: Api):
    """As many observations as features; V and theta are those of all totals, at the weight 1/k of a slate."""
    await api.catalogue("c", FEATURES)
    await api.bandit("b", "c", ridge=0.5)
    await make(api, "s", method="icb")
    rng, told = np.random.default_rng(8), []
    while (view := await api.ok("GET", "/v1/slates/s"))["state"] == "sampling":
        pulls = await ask(api, "s", 20)
        results = totals(pulls, rng)
        told += [(p["slate"], r["total"]) for p, r in zip(pulls, results, strict=True)]
        await tell(api, "s", results)
    told = told[: view["progress"]["looked_at"]]
    path = "/v1/slates/s/teach?wait=applied"
    receipt = await api.ok("POST", path, {"bandit": "b"})
    assert receipt == {"accepted": 3, "duplicate": 0, "rejected": []}
    sums = np.array([np.sum([FEATURES[arm] for arm in slate], axis=0) for slate, _ in told]) / np.sqrt(3.0)
    values = np.array([total for _, total in told]) / np.sqrt(3.0)
    learner = await api.learner("b", precision=True)
    V, theta = ridge_of(sums, values, ridge=0.5)
    np.testing.assert_allclose(learner["precision"], V, rtol=1e-9)
    np.testing.assert_allclose(learner["theta"], theta, rtol=1e-8)
    assert await api.ok("POST", path, {"bandit": "b"}) == {"accepted": 0, "duplicate": 3, "rejected": []}
    assert await api.learner("b", precision=True) == learner


@pytest.mark.parametrize("policy", ["sub_ts", "softmax", "linear_elim"])
async def test_a_finished_slate_is_served_as_a_baseline_and_learned_from(api: Api, policy: str):
    await api.catalogue("c", FEATURES)
    await api.bandit("b", "c", policy=policy)
    done = await finished(api, "s")
    choice = await api.choose("b", k=3, baseline="s")
    assert [arm["id"] for arm in choice["arms"]] == done["best"]
    assert choice["exact"]
    assert [arm["id"] for arm in (await api.choose("b", k=2, baseline="s"))["arms"]] == done["best"][:2]
    fewer = await api.choose("b", k=3, baseline="s", exclude=[done["best"][0]])
    assert [arm["id"] for arm in fewer["arms"]] == done["best"][1:]
    reward = {"decision": choice["decision"], "arm": done["best"][1], "value": 1.0}
    assert (await api.reward(reward))["accepted"] == 1
    assert (await api.learner("b"))["observations"] == 1
    after = await api.choose("b", k=3, baseline="s")
    assert [arm["id"] for arm in after["arms"]] == done["best"], "the order is the campaign's"
    assert after["arms"][0]["score"] != 0.0
    await api.ok("DELETE", f"/v1/catalogues/c/arms/{done['best'][0]}", status=204)
    gone = await api.choose("b", k=3, baseline="s")
    assert [arm["id"] for arm in gone["arms"]] == done["best"][1:]
