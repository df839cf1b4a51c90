"""The roots of B_Normal beside the table that the paper prints."""

from __future__ import annotations

import numpy as np
import pytest

from shortlist.sampling.b_normal import b_normal
from studies.experiments.sampling_table import PRINTED, SHARES

pytestmark = pytest.mark.rest


@pytest.mark.parametrize("every", [6, pytest.param(1, marks=pytest.mark.slow)])
def test_the_two_sided_root_is_the_printed_table(every):
    deltas = list(PRINTED)[::every]
    found = np.array([[b_normal(delta, share, two_sided=True) for share in SHARES] for delta in deltas])
    printed = np.array([PRINTED[delta] for delta in deltas])
    error = np.abs(found - printed)
    assert printed.shape == (np.ceil(39 / every), 6)
    assert np.median(error) < 0.0018
    assert np.quantile(error, 0.95) < 0.009
    assert error.max() < 0.035
