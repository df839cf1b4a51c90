"""Which decisions of a bandit are logged: a share of them, by a stable hash of their ids."""

from __future__ import annotations

from app.services.bandits.shares import is_in_share

_DOMAIN = b"decision log"  # so that this is no sample of any holdout


def is_logged(decision_id: str, share: float) -> bool:
    """Whether the decision is among the share. Nothing is computed when all are."""
    return share >= 1.0 or is_in_share(_DOMAIN, decision_id, share)
