"""Representative arms of a catalogue: greedy's centres, what they cost, which version, and bad input."""

import asyncio
from dataclasses import replace

import numpy as np
import pytest

from api_client import Api, Json
from center_brute_force import greedy, radius, separated, squared
from shortlist_campaigns.catalogue_centers import METHODS

pytestmark = pytest.mark.anyio

FIELDS = {
    "centers", "radius", "method", "guarantee", "cost", "catalogue_version", "elapsed_ms",
}  # fmt: skip


def points(dim: int, n: int = 40, seed: int = 2) -> np.ndarray:
    """Far apart, and not all of them exact in float32."""
    return separated(n, dim, 6, seed, dtype=np.float64)


async def build(api: Api, features: np.ndarray, name: str = "c") -> None:
    await api.catalogue(name, {f"a{i}": row for i, row in enumerate(features)})


async def find(api: Api, name: str = "c", **body: object) -> Json:
    answer: Json = await api.ok("POST", f"/v1/catalogues/{name}/centers", {"k": 4, **body})
    assert set(answer) == FIELDS
    return answer


@pytest.mark.parametrize(("method", "dim"), [*((method, 900) for method in METHODS), ("ds_ucb", 3)])
async def test_the_centres_are_those_of_greedy(api: Api, method: str, dim: int):
    features = points(dim)
    await build(api, features)
    matrix = squared(features)
    answer = await find(api, method=method, first="a7", delta=1e-6, seed=1)
    centers = [int(name[1:]) for name in answer["centers"]]
    assert centers == greedy(matrix, 4, 7)
    assert answer["radius"] == pytest.approx(np.sqrt(radius(matrix, centers)), rel=1e-9)
    assert (answer["method"], answer["catalogue_version"]) == (method, 1)
    kind = "exact" if method == "naive" or dim == 3 else "pac"
    assert answer["guarantee"] == {"kind": kind, "epsilon": 0.0, "delta": 1e-6 if kind == "pac" else 0.0}
    cost = answer["cost"]
    assert cost["exhaustive_reads"] == 40 * dim * 4
    assert (cost["reads"] == cost["exhaustive_reads"]) == (kind == "exact")


@pytest.mark.rest
async def test_a_change_of_the_catalogue_is_seen_by_the_next_call(api: Api):
    features = points(900)
    await build(api, features)
    before = await find(api, first="a0", seed=1)
    await api.put_arms("c", {"far": features[0] + 9.0})
    after = await find(api, first="a0", seed=1)
    assert (before["catalogue_version"], after["catalogue_version"]) == (1, 2)
    assert after["centers"][:2] == ["a0", "far"]
    await api.ok("DELETE", "/v1/catalogues/c/arms/far", status=204)
    again = await find(api, first="a0", seed=1)
    assert again["centers"] == before["centers"]
    assert again["catalogue_version"] == 3


@pytest.mark.rest
async def test_a_call_works_on_one_version_while_the_catalogue_changes(api: Api):
    """Calls race with writes: every answer is greedy's for the arms of the version that it names."""
    rng = np.random.default_rng(1)
    features = points(300)
    await build(api, features)
    versions = {1: features.copy()}

    async def write() -> None:
        for version in range(2, 12):
            changed = features.copy() if version == 2 else versions[version - 1].copy()
            row = int(rng.integers(1, 40))
            changed[row] = features[row] + rng.normal(size=300)
            versions[version] = changed
            assert (await api.put_arms("c", {f"a{row}": changed[row]}))["version"] == version

    async def ask() -> list[Json]:
        return [await find(api, first="a0", method="naive") for _ in range(10)]

    *answers, _ = await asyncio.gather(ask(), ask(), write())
    for answer in [*answers[0], *answers[1]]:
        wanted = greedy(squared(versions[answer["catalogue_version"]]), 4, 0)
        assert answer["centers"] == [f"a{row}" for row in wanted]


@pytest.mark.rest
async def test_a_tolerance_and_the_heuristic_interval_are_named(api: Api):
    await build(api, points(900))
    answer = await find(api, epsilon=0.05, delta=0.2, seed=1)
    assert answer["guarantee"] == {"kind": "pac", "epsilon": 0.05, "delta": 0.2}
    answer = await find(api, ci="experiment", seed=1)
    assert answer["guarantee"]["kind"] == "none"


@pytest.mark.rest
async def test_no_catalogue_no_arms_and_too_much_work(api: Api, monkeypatch: pytest.MonkeyPatch):
    for method, row in list(METHODS.items()):
        most = 400 * 30 * (2 if method == "random" else 8)
        monkeypatch.setitem(METHODS, method, replace(row, most_reads=most))
    await api.refused("POST", "/v1/catalogues/none/centers", {"k": 1}, status=404, code="not_found")
    await api.catalogue("empty", {}, dim=3)
    await api.refused("POST", "/v1/catalogues/empty/centers", {"k": 1}, status=409, code="no_arms")
    await build(api, points(400, 30))
    for method, most in (("naive", 8), ("ds_ucb", 8), ("ds_ts", 8), ("random", 2)):
        body = {"k": most, "method": method}
        assert len((await find(api, **body))["centers"]) == most
        await api.refused(
            "POST",
            "/v1/catalogues/c/centers",
            {**body, "k": most + 1},
            status=413,
            code="too_large",
            loc=["body", "k"],
        )
