"""/v1/slates under rules: at most two of each maker, in what is shown and in what is found."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from api_client import Api, Json

pytestmark = pytest.mark.anyio

ARMS = [f"a{i}" for i in range(8)]
MEANS = dict(zip(ARMS, np.linspace(2.1, 0.0, 8), strict=True))
MAKERS = ["ann", "ann", "ann", "ann", "bob", "bob", None, None]
METADATA = {arm: {"maker": maker} for arm, maker in zip(ARMS, MAKERS, strict=True) if maker}
RULES = {"at_most": [{"field": "maker", "count": 2}]}
BODY: Json = {
    "id": "s", "arms": ARMS, "k": 4, "epsilon": 0.2, "noise_std": 0.1, "seed": 1, "rules": RULES,
    "metadata": METADATA,
}  # fmt: skip
BEST = ["a0", "a1", "a4", "a5"]


def allowed(slate: list[str]) -> bool:
    counts = Counter(METADATA[arm]["maker"] for arm in slate if arm in METADATA)
    return len(set(slate)) == 4 and all(count <= 2 for count in counts.values())


async def finish(api: Api, name: str) -> Json:
    rng, shown = np.random.default_rng(3), []
    for _ in range(100):
        pulls = (await api.ok("POST", f"/v1/slates/{name}/ask", {"count": 50}))["pulls"]
        shown += [pull["slate"] for pull in pulls]
        results = [
            {"pull": p["pull"], "total": sum(MEANS[a] for a in p["slate"]) + 0.1 * rng.standard_normal()}
            for p in pulls
        ]
        if (await api.ok("POST", f"/v1/slates/{name}/tell", {"results": results}))["done"]:
            break
    assert all(allowed(slate) for slate in shown), "a slate that is shown is one that may be sold"
    answer: Json = await api.ok("GET", f"/v1/slates/{name}")
    return answer


@pytest.mark.parametrize(
    ("method", "allocation"), [("icb", "uniform"), ("icb", "xy"), ("saqm", "g"), ("exhaustive", "uniform")]
)
async def test_the_best_allowed_slate_is_found(shared: Api, method: str, allocation: str):
    name = f"{method}-{allocation}"
    made = await shared.ok(
        "POST", "/v1/slates", {**BODY, "id": name, "method": method, "allocation": allocation}, 201
    )
    assert (made["rules"], made["catalogue"], made["metadata"]) == (RULES, None, METADATA)
    done = await finish(shared, name)
    assert done["state"] == "done"
    assert done["best"] == BEST
    assert done["bounds"]["lower"] <= sum(MEANS[arm] for arm in BEST) <= done["bounds"]["upper"]
    assert done["guarantee"] == {"kind": "pac", "epsilon": 0.2, "delta": 0.05}
    assert done["warnings"] == []


@pytest.mark.rest
async def test_icb_is_the_method_when_none_is_named(shared: Api):
    made = await shared.ok("POST", "/v1/slates", {**BODY, "id": "unnamed"}, 201)
    assert made["method"] == "icb"
    free = {key: value for key, value in BODY.items() if key not in {"rules", "metadata"}}
    made = await shared.ok("POST", "/v1/slates", {**free, "id": "free"}, 201)
    assert (made["method"], made["rules"], made["catalogue"], made["metadata"]) == (
        "sa_foa",
        None,
        None,
        None,
    )
    assert await shared.ok("POST", "/v1/slates", {**free, "id": "free", "rules": None}, 200) == made


@pytest.mark.rest
async def test_slates_that_hold_equally_many_of_each_are_compared_all_the_same(api: Api):
    """Two of each of two makers: how much one maker brings in all cannot be told, and need not be."""
    makers = {arm: {"maker": ["ann", "bob"][place // 4]} for place, arm in enumerate(ARMS)}
    await api.catalogue("c", {arm: [1.0, float(place)] for place, arm in enumerate(ARMS)})
    await api.bandit("b", "c")
    await api.ok("POST", "/v1/slates", {**BODY, "metadata": makers}, 201)
    rng, done = np.random.default_rng(3), False
    while not done:
        pulls = (await api.ok("POST", "/v1/slates/s/ask", {"count": 50}))["pulls"]
        results = [
            {"pull": p["pull"], "total": sum(MEANS[a] for a in p["slate"]) + 0.1 * rng.standard_normal()}
            for p in pulls
        ]
        done = (await api.ok("POST", "/v1/slates/s/tell", {"results": results}))["done"]
    found = await api.ok("GET", "/v1/slates/s")
    assert sorted(found["best"]) == BEST, "estimates compare arms of one maker, not of two"
    taught = await api.ok("POST", "/v1/slates/s/teach?wait=applied", {"bandit": "b"})
    assert taught == {"accepted": 2, "duplicate": 0, "rejected": []}
    served = await api.choose("b", k=4, baseline="s")
    assert [arm["id"] for arm in served["arms"]] == found["best"]


def arms(makers: list[object], field: str = "maker") -> list[Json]:
    return [
        {"id": arm, "features": [1.0, float(place)], "metadata": {} if maker is None else {field: maker}}
        for place, (arm, maker) in enumerate(zip(ARMS, makers, strict=True))
    ]


@pytest.mark.rest
async def test_the_fields_may_be_those_of_a_catalogue_as_they_were(api: Api):
    await api.ok("PUT", "/v1/catalogues/c", {"dim": 2}, 201)
    await api.ok("PUT", "/v1/catalogues/c/arms", {"arms": arms(list(MAKERS))})
    body = {key: value for key, value in BODY.items() if key != "metadata"} | {"catalogue": "c"}
    made = await api.ok("POST", "/v1/slates", body, 201)
    assert (made["catalogue"], made["metadata"]) == ("c", METADATA)
    await api.ok("PUT", "/v1/catalogues/c/arms", {"arms": arms([None, *MAKERS[1:]])})
    assert await api.ok("POST", "/v1/slates", body, 200) == made, "asked for again, it is the same campaign"
    await api.refused("POST", "/v1/slates", {**body, "k": 3}, status=409, code="conflict")
    await api.ok("DELETE", "/v1/catalogues/c", status=204)
    assert await api.ok("POST", "/v1/slates", body, 200) == made
    assert (await finish(api, "s"))["best"] == BEST
    await api.refused("POST", "/v1/slates", {**body, "id": "t"}, status=404, code="not_found")


ONE = {"at_most": [{"field": "maker", "count": 1}]}
FIELD = ["body", "rules", "at_most", 0, "field"]


@pytest.mark.rest
@pytest.mark.parametrize(
    ("change", "loc"),
    [
        ({"rules": {}}, ["body", "rules", "at_most"]),
        ({"rules": {"at_most": []}}, ["body", "rules", "at_most"]),
        ({"rules": {"at_most": RULES["at_most"] * 2}}, ["body", "rules", "at_most"]),
        ({"rules": {**RULES, "pin": []}}, ["body", "rules", "pin"]),
        ({"rules": {"at_most": [{"field": "maker", "count": 0}]}}, [*FIELD[:-1], "count"]),
        ({"rules": {"at_most": [{"field": "maker", "count": "2"}]}}, [*FIELD[:-1], "count"]),
        ({"rules": {"at_most": [{"field": "", "count": 2}]}}, FIELD),
        ({"rules": {"at_most": [{"field": "colour", "count": 2}]}}, FIELD),
        ({"rules": ONE, "k": 5}, ["body", "rules"]),
        ({"rules": ONE, "arms": ARMS[3:5] + ARMS[6:], "metadata": {"a3": {"maker": "x"}}}, ["body", "k"]),
        (
            {"rules": ONE, "k": 3, "arms": ["a0", "a1", "a6", "a7"], "metadata": {"a0": {"maker": "x"}}},
            None,
        ),
        ({"metadata": None}, ["body", "metadata"]),
        ({"catalogue": "c"}, ["body", "metadata"]),
        ({"rules": None}, ["body", "metadata"]),
        ({"metadata": {"stranger": {"maker": "x"}}}, ["body", "metadata"]),
        ({"metadata": {"a0": {"maker": ["x", "y"]}}}, ["body", "arms", 0]),
        ({"metadata": {"a0": {"maker": 2**64}}}, ["body", "metadata", "a0"]),
        ({"metadata": {"a0": {"maker": "x" * 20_000}}}, ["body", "metadata", "a0"]),
        ({"metadata": {"a0": 3}}, ["body", "metadata", "a0"]),
        ({"metadata": {}}, FIELD),
        ({"method": "sa_foa"}, ["body", "method"]),
        ({"method": "saqm", "bound": "paper"}, ["body", "bound"]),
        ({"arms": [*ARMS, "a0"]}, ["body", "arms", 8]),
        ({"allocation": "xy", "arms": [*ARMS, *(f"x{i}" for i in range(60))]}, ["body", "allocation"]),
    ],
)  # fmt: skip
async def test_what_is_wrong_is_named(shared: Api, change: Json, loc: list[str | int] | None):
    body = {key: value for key, value in {**BODY, "id": "wrong", **change}.items() if value is not None}
    if loc is None:
        await shared.ok("POST", "/v1/slates", {**body, "id": "right"}, 201)
        return
    await shared.refused("POST", "/v1/slates", body, loc=loc)
    await shared.refused("GET", "/v1/slates/wrong", status=404, code="not_found")


async def test_arms_that_a_catalogue_lacks_or_has_twice_over_are_named(api: Api):
    await api.ok("PUT", "/v1/catalogues/c", {"dim": 2}, 201)
    makers: list[object] = [["ann", "bob"], *MAKERS[1:]]
    await api.ok("PUT", "/v1/catalogues/c/arms", {"arms": arms(makers)[:6]})
    body = {key: value for key, value in BODY.items() if key != "metadata"} | {"catalogue": "c"}
    problem = await api.refused("POST", "/v1/slates", body, loc=["body", "arms", 6])
    assert [error["loc"] for error in problem["errors"]] == [["body", "arms", 6], ["body", "arms", 7]]
    await api.refused("POST", "/v1/slates", {**body, "arms": ARMS[:6]}, loc=["body", "arms", 0])
    await api.refused("POST", "/v1/slates", {**body, "catalogue": "none"}, status=404, code="not_found")
