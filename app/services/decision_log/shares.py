"""Which decisions of a bandit are logged: a share of them, by a stable hash of their ids."""

from __future__ import annotations

import hmac

_DOMAIN = b"decision log"  # so that this is no sample of any holdout
HASH_BYTES = 6  # a number that is exact in float64


def is_logged(decision_id: str, share: float) -> bool:
    """Whether the decision is among the share. Cost: one HMAC-SHA256, some microseconds; none for all."""
    if share >= 1.0:
        return True
    digest = hmac.digest(_DOMAIN, decision_id.encode(), "sha256")
    number: int = int.from_bytes(digest[:HASH_BYTES], "big")
    return number < share * float(2 ** (8 * HASH_BYTES))
