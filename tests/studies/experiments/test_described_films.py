"""Reading what MovieLens says of films besides their ratings."""

from __future__ import annotations

import numpy as np
import pytest

from studies.experiments import movielens

pytestmark = pytest.mark.rest


def test_both_formats_describe_the_same_films(movielens_100k, movielens_1m):
    one, other = (
        movielens.described(folder, movielens.read(folder)) for folder in (movielens_100k, movielens_1m)
    )
    np.testing.assert_array_equal(one, other)
    assert one[:, :-1].sum(axis=1).tolist() == [1.0] * len(one)  # of one genre each
    assert one[:, -1].min() == -3.0  # 1960, in decades since 1990
