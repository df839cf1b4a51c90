"""The answer kept for an ``event_id``: the parts which cannot be made again."""

from __future__ import annotations

import zlib

import msgspec

from app.records.records import unpack


class KeptChoice(msgspec.Struct, frozen=True, array_like=True, omit_defaults=True):
    """``token``: the bytes of the token, compressed, with the arms. ``asked``: digest of the request.

    ``scores``, ``propensities``   of each arm; None: the policy knows no propensities
    ``pinned``                     places of the pinned arms, from 0
    """

    token: bytes
    asked: bytes
    scores: list[float]
    policy: str
    learner_version: int
    catalogue_version: int
    exact: bool
    propensities: list[float] | None = None
    pinned: list[int] = []
    stale_s: float | None = None
    eligible: int | None = None
    group: str | None = None
    prior_version: int | None = None
    effects_version: int | None = None
    unknown: int = 0


def token_of(data: bytes) -> bytes | None:
    """The bytes of the token of a packed ``KeptChoice``; None if unreadable."""
    try:
        return zlib.decompress(unpack(data, KeptChoice).token)
    except (zlib.error, msgspec.MsgspecError):
        return None
