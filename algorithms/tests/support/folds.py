"""The sums after a log, which may be cut into batches."""

from __future__ import annotations

import numpy as np

from shortlist.linear import ridge_sums


def fold(features, values, first=None, cuts=()):
    first = np.ones(len(values), dtype=bool) if first is None else first
    sums = ridge_sums.empty(features.shape[1])
    for start, stop in zip((0, *cuts), (*cuts, len(values)), strict=True):
        sums = ridge_sums.add(sums, features[start:stop], values[start:stop], first[start:stop])
    return sums
