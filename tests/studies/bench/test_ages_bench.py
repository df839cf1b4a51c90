"""The benchmark of ages, on worlds small enough for a test: its figures are what they say."""

from __future__ import annotations

import pytest

from studies.bench import ages

pytestmark = pytest.mark.rest


def test_learning_ages_gains_where_effects_fade_and_changes_nothing_where_they_stay():
    """Seeded, so the same at each run: in six draws of 6,000 lists it was 1.56 (.06) and 1."""
    news, same = (ages.row(kind, 1, 1_500) for kind in (ages.KINDS[0], ages.KINDS[2]))
    assert news["ages"] > 1.08
    assert same["ages"] == 1.0
