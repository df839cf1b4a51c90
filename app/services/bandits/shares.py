"""Shares of units, such as keys or decisions, by a stable hash that anybody can compute again."""

from __future__ import annotations

import hmac

HASH_BYTES = 6  # a number that is exact in float64


def is_in_share(key: bytes, unit: str, share: float) -> bool:
    """Whether the unit is in the share. It stays in it while the share is the same or grows.

    ``key``: shares of different keys are independent samples. Cost: one HMAC-SHA256, about a microsecond.
    """
    digest = hmac.digest(key, unit.encode(), "sha256")
    number = int.from_bytes(digest[:HASH_BYTES], "big")
    return number < share * float(2 ** (8 * HASH_BYTES))
