"""Ids that callers give, and shares of ids by a stable hash."""

from __future__ import annotations

import hmac
import re
from collections.abc import Iterable
from typing import Annotated

from pydantic import StringConstraints

from app.platform.errors import FieldPath, Invalid

IDENTIFIER = r"[A-Za-z0-9][A-Za-z0-9._:-]{0,127}"
Identifier = Annotated[str, StringConstraints(pattern=f"^{IDENTIFIER}$")]
is_identifier = re.compile(IDENTIFIER).fullmatch
HASH_BYTES = 6  # a number that is exact in float64
_DOMAIN = b"decision log"  # so that this is no sample of any holdout


def refuse_repeats(ids: Iterable[str], message: str, at: FieldPath, field: FieldPath = ()) -> None:
    """Raise Invalid at the first repeated id.

    ``at`` is where the ids are, ``field`` where the id is in each: the error is at (*at, position, *field).
    """
    ids_so_far: set[str] = set()
    for position, one in enumerate(ids):
        if one in ids_so_far:
            raise Invalid(message, path=(*at, position, *field))
        ids_so_far.add(one)


def is_in_share(key: bytes, unit: str, share: float) -> bool:
    """Return whether the unit is in the share. A unit stays while the share is the same or grows.

    ``key``: shares of different keys are independent samples. Cost: one HMAC-SHA256, about a microsecond.
    """
    digest = hmac.digest(key, unit.encode(), "sha256")
    number = int.from_bytes(digest[:HASH_BYTES], "big")
    return number < share * float(2 ** (8 * HASH_BYTES))


def is_logged(decision_id: str, share: float) -> bool:
    """Return whether the decision is in the share of logged ones. Nothing is computed where all are."""
    return share >= 1.0 or is_in_share(_DOMAIN, decision_id, share)
