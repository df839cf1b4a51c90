"""The growth benchmark on catalogues small enough for a test: its exponents are slopes of its own figures."""

from __future__ import annotations

import numpy as np
import pytest

from studies.bench import growth

pytestmark = pytest.mark.rest


def test_every_decision_is_timed():
    found = growth.decisions(300, 20)
    assert set(found) == set(growth.POLICIES)
    assert all(0 < us < 1e6 for us in found.values())
    assert np.isfinite(list(found.values())).all()
