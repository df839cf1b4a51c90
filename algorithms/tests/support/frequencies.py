"""Draws of ordered lists, compared with the probabilities that are claimed for them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import TypeVar

import numpy as np

T = TypeVar("T")

ENOUGH = 25.0  # expected draws of a list, for the normal approximation; rarer lists count together


def furthest_sigma(counts: Counter[T], probabilities: Mapping[T, float]) -> float:
    """By how many standard deviations the count that is furthest off its expectation is off."""
    draws = counts.total()
    assert set(counts) <= set(probabilities)
    often = [drawn for drawn, p in probabilities.items() if draws * p >= ENOUGH]
    found = [(counts[drawn], probabilities[drawn]) for drawn in often]
    rest = 1.0 - sum(p for _, p in found)
    if draws * rest >= ENOUGH:
        found.append((draws - sum(count for count, _ in found), rest))
    observed, p = np.array(found).T
    return float((np.abs(observed - draws * p) / np.sqrt(draws * p * (1.0 - p))).max())
