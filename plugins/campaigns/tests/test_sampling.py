"""POST /v1/sample and /v1/catalogues/{c}/sample: what is drawn, what is said about it, and what is refused.

Frequencies are rejected beyond their 1e-7 quantile, at seeds that are fixed.
"""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from api_client import Api

pytestmark = pytest.mark.anyio

ALARM = 1e-7
METHODS = ("racing_normal", "racing_ebs", "lil_ucb", "exact")
PAC = {"kind": "pac", "delta": 0.02, "assumes": None, "reason": None}
SUMMED = "all sums were computed, which reads no more"
P = np.array([0.45, 0.3, 0.2, 0.05])


def matrix(size, sigma=1e-3, seed=0):
    noise = np.random.default_rng(seed).standard_normal((len(P), size)) * sigma
    return np.log(P)[:, None] / size + noise - noise.mean(axis=1, keepdims=True)


def fits(counts, p):
    """Pearson's test; what is expected less than five times together is one case with the next rarest."""
    order = np.argsort(p)
    expected, found = p[order] * sum(counts), np.asarray(counts)[order]
    rare = max(1, int(np.searchsorted(np.cumsum(expected), 5.0)) + 1)
    cases = [np.append(values[:rare].sum(), values[rare:]) for values in (found, expected)]
    return len(cases[0]) == 1 or stats.chisquare(*cases).pvalue > ALARM


@pytest.mark.parametrize("method", METHODS)
async def test_rows_are_drawn_as_their_factors_say(shared: Api, method: str):
    body = {"log_factors": matrix(300).tolist(), "method": method, "draws": 3_000, "seed": 3}
    answer = await shared.ok("POST", "/v1/sample", body)
    assert fits(np.bincount(answer["draws"], minlength=4), P)
    assert answer["method"] == method
    assert answer["cost"]["reads"] <= answer["cost"]["exhaustive_reads"] == 4 * 300
    assert answer == {**await shared.ok("POST", "/v1/sample", body), "elapsed_ms": answer["elapsed_ms"]}


@pytest.mark.parametrize(
    ("rest", "guarantee"),
    [
        ({"method": "racing_normal"}, PAC | {"assumes": "normal_means"}),
        ({"method": "racing_ebs"}, PAC),
        ({"method": "lil_ucb"}, PAC),
        (
            {"method": "lil_ucb", "setting": "heuristic"},
            PAC | {"kind": "none", "reason": "setting: heuristic"},
        ),
        ({"method": "exact"}, PAC | {"kind": "exact", "delta": 0.0}),
        ({"draws": 1_000}, PAC | {"kind": "exact", "delta": 0.0, "reason": SUMMED}),
    ],
)
async def test_the_guarantee_is_that_of_what_was_done(shared: Api, rest, guarantee):
    body = {"log_factors": matrix(4_000, 1e-5).tolist(), "delta": 0.02, "seed": 5, **rest}
    answer = await shared.ok("POST", "/v1/sample", body)
    assert answer["guarantee"] == guarantee
    exact = guarantee["kind"] == "exact"
    assert (answer["cost"]["reads"] == 16_000) == exact
