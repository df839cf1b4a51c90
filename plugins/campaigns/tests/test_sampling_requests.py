"""Draws of arms and of matrices over HTTP: bad input, extremes, races, other encodings."""

from __future__ import annotations

import asyncio
import math

import numpy as np
import pytest

from api_client import Api
from test_sampling import ALARM, METHODS, P, fits, matrix

pytestmark = [pytest.mark.anyio, pytest.mark.rest]


@pytest.mark.parametrize("method", METHODS)
async def test_a_row_with_a_zero_factor_is_never_drawn(shared: Api, method: str):
    logs = matrix(200).tolist()
    logs[0][7], logs[2][150] = None, "-Infinity"
    body = {"log_factors": logs, "method": method, "draws": 2_000, "seed": 2}
    draws = (await shared.ok("POST", "/v1/sample", body))["draws"]
    assert set(draws) == {1, 3}
    assert fits(np.bincount(draws, minlength=4)[[1, 3]], P[[1, 3]] / P[[1, 3]].sum())
    body["log_prior"] = [0, None, 0, 0]
    assert set((await shared.ok("POST", "/v1/sample", body))["draws"]) == {3}


@pytest.mark.parametrize(
    ("changed", "loc"),
    [
        ({"log_factors": []}, ["body", "log_factors"]),
        ({"log_factors": [[]]}, ["body", "log_factors", 0]),
        ({"log_factors": [[1, 2], [1], [1, 2]]}, ["body", "log_factors", 1]),
        ({"log_factors": [[1], [1, 2], [1, 2]]}, ["body", "log_factors", 0]),
        ({"log_factors": [[1, 2], 3]}, ["body", "log_factors", 1]),
        ({"log_factors": [[1, "Infinity"]]}, ["body", "log_factors", 0, 1]),
        ({"log_factors": [[1, "-inf"]]}, ["body", "log_factors", 0, 1]),
        ({"log_factors": [[1, True]]}, ["body", "log_factors", 0, 1]),
        ({"log_factors": [[1, 1.1e9]]}, ["body", "log_factors", 0, 1]),
        ({"log_factors": [[1, None]]}, ["body", "log_factors"]),
        ({"log_factors": [[1], [2]], "log_prior": [None, "-Infinity"]}, ["body", "log_factors"]),
        ({"log_prior": [0]}, ["body", "log_prior"]),
        ({"log_prior": [0, "nan"]}, ["body", "log_prior", 1]),
        ({"delta": 0}, ["body", "delta"]),
        ({"delta": 1}, ["body", "delta"]),
        ({"draws": 0}, ["body", "draws"]),
        ({"draws": 10_001}, ["body", "draws"]),
        ({"method": "ebs"}, ["body", "method"]),
        ({"variance": "both"}, ["body", "variance"]),
        ({"setting": "fast"}, ["body", "setting"]),
        ({"temperature": 1}, ["body", "temperature"]),
    ],
)
async def test_a_bad_sample_is_refused_and_the_field_is_named(shared: Api, changed, loc):
    body = {"log_factors": [[0, 1, 2], [1, 2, 3]], **changed}
    await shared.refused("POST", "/v1/sample", body, loc=loc)


@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS)
async def test_the_largest_matrices_are_answered_while_others_are_served(shared: Api, method: str):
    rng = np.random.default_rng(1)
    for shape in ((1_000, 300), (3, 50_000)):
        body = {"log_factors": rng.standard_normal(shape).round(3).tolist(), "method": method}
        call = asyncio.create_task(shared.ok("POST", "/v1/sample", body))
        await shared.ok("GET", "/healthz")
        assert 0 <= (await call)["draws"][0] < shape[0]


async def test_extreme_numbers_give_the_only_possible_answer(shared: Api):
    for method in METHODS:
        body = {"log_factors": [[-1e9] * 60, [1e9] * 60, [0.0] * 60], "method": method, "draws": 3}
        assert (await shared.ok("POST", "/v1/sample", body))["draws"] == [1, 1, 1]


# Arms of a catalogue --------------------------------------------------------------------------------
QUERY = [1.0, -0.5, 0.25]


FEATURES = {f"s{i}": np.random.default_rng(i).standard_normal(3).round(3).tolist() for i in range(6)}


def softmax(temperature):
    weights = np.array([np.dot(QUERY, row) for row in FEATURES.values()]) / temperature
    exp = np.exp(weights - weights.max())
    return exp / exp.sum()


async def test_arms_are_drawn_by_their_softmax(shared: Api):
    await shared.catalogue("softmax", FEATURES)
    for temperature in (0.3, 1.0, 20.0):
        for method in METHODS:
            body = {"query": QUERY, "temperature": temperature, "method": method, "draws": 3_000, "seed": 4}
            answer = await shared.ok("POST", "/v1/catalogues/softmax/sample", body)
            counts = [answer["draws"].count(arm) for arm in FEATURES]
            assert fits(counts, softmax(temperature))
            assert answer["guarantee"]["kind"] == "exact"
            assert answer["cost"] == {"reads": 18, "exhaustive_reads": 18}


async def test_no_arms_and_no_catalogue(shared: Api):
    await shared.catalogue("empty-sample", {}, dim=3)
    body = {"query": [1, 2, 3]}
    await shared.refused("POST", "/v1/catalogues/empty-sample/sample", body, status=409, code="no_arms")
    await shared.refused("POST", "/v1/catalogues/nowhere/sample", body, status=404, code="not_found")


# Races over coordinates -----------------------------------------------------------------------------
@pytest.fixture
async def wide_catalogue(shared: Api) -> dict[str, list[float]]:
    """A catalogue of 40 arms with 1,024 coordinates, one of them far ahead for the query of ones."""
    rng = np.random.default_rng(7)
    arms = {f"w{i}": row.round(4).tolist() for i, row in enumerate(rng.standard_normal((40, 1_024)))}
    arms["ahead"] = (rng.standard_normal(1_024) + 1.0).round(4).tolist()
    if (await shared.call("GET", "/v1/catalogues/wide")).status_code == 404:
        await shared.catalogue("wide", arms)
    return arms


async def test_draws_of_races_follow_the_softmax(shared: Api, wide_catalogue):
    """Total variation at most delta = 0.01, and the noise of 400 draws (false alarm below 1e-7)."""
    scores = np.array([np.sum(row) for row in wide_catalogue.values()])
    temperature = 400.0
    p = np.exp(scores / temperature - (scores / temperature).max())
    p /= p.sum()
    body = {"query": [1.0] * 1_024, "temperature": temperature, "delta": 0.01}
    draws = []
    for _ in range(400):
        answer = await shared.ok("POST", "/v1/catalogues/wide/sample", body)
        assert answer["guarantee"]["assumes"] == "normal_means"
        draws += answer["draws"]
    share = np.array([draws.count(arm) for arm in wide_catalogue]) / 400
    ahead = share[-1] - p[-1]
    assert abs(ahead) <= 0.01 + math.sqrt(math.log(2 / ALARM) / (2 * 400))
    assert len(set(draws)) > 5


@pytest.mark.parametrize(
    ("rest", "reason"),
    [
        ({"draws": 3}, "several draws are made from all scores"),
        ({"seed": 1}, "with a seed all arms are scored: the order of a race is not the caller's"),
        ({"temperature": 1e-9}, "the query over the temperature is too large to race"),
        ({"method": "exact"}, None),
    ],
)
async def test_what_is_scored_completely_says_why(shared: Api, wide_catalogue, rest, reason):
    body = {"query": [2.0] * 1_024, **rest}
    answer = await shared.ok("POST", "/v1/catalogues/wide/sample", body)
    assert answer["guarantee"] == {"kind": "exact", "delta": 0.0, "assumes": None, "reason": reason}
    assert set(answer["draws"]) == {"ahead"}


OCTETS = {"content-type": "application/octet-stream"}


async def test_factors_as_an_octet_stream_are_those_of_json(shared: Api):
    factors = np.random.default_rng(5).normal(size=(40, 30)).astype("<f4")
    prior = np.random.default_rng(6).normal(size=40).astype("<f4")
    factors[3, 4] = prior[7] = -np.inf
    as_json = [[None if number == -np.inf else number for number in row] for row in factors.tolist()]
    prior_json = [None if number == -np.inf else number for number in prior.tolist()]
    for method in ("exact", "racing_normal"):
        for log_prior, data in ((None, b""), (prior_json, prior.tobytes())):
            body = {"log_factors": as_json, "log_prior": log_prior, "method": method, "draws": 9, "seed": 1}
            expected = await shared.ok("POST", "/v1/sample", body)
            path = f"/v1/sample?n=40&dim=30&method={method}&draws=9&seed=1"
            found = await shared.ok("POST", path, content=factors.tobytes() + data, headers=OCTETS)
            assert found | {"elapsed_ms": 0} == expected | {"elapsed_ms": 0}
