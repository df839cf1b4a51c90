"""The chain on a part of the data has the posterior of the chain on all of it."""

import sys

import numpy as np
import pytest

from examples import subsampled_mh
from examples.subsampled_mh import make, mode, proxies
from shortlist.sampling.control_variates import controlled
from shortlist.sampling.factors import Factors

pytestmark = pytest.mark.rest


def test_the_proxies_are_close_and_their_means_exact():
    data = make(3_000, 2, seed=1)
    best, _ = mode(data)
    pair = np.stack((best, best + 0.02))
    factors = Factors(
        2, 3_000, lambda rows, n: np.stack([data.log_likelihoods(pair[row], n) for row in rows])
    )
    residual, constants = controlled(factors, proxies(data, best)(pair))
    assert np.allclose(residual.sums() + constants, factors.sums(), rtol=0, atol=1e-8)
    everything = np.arange(2), np.arange(3_000)
    assert np.ptp(residual.read(*everything)[1]) < 1e-3 * np.ptp(factors.read(*everything)[1])


def test_it_runs_and_prints_its_table(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    monkeypatch.setattr(sys, "argv", ["subsampled_mh", "--size", "2000", "--steps", "20"])
    subsampled_mh.main()
    lines = capsys.readouterr().out.splitlines()
    assert [line.split("  ")[0] for line in lines] == ["chain", "exact", "race", "race with proxies"]
