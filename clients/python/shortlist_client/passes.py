"""Passes: what a server gives to a page, so that it can choose and reward for one visitor, for some time."""

from __future__ import annotations

import hashlib
import hmac
import json
import re
import time
from base64 import urlsafe_b64encode
from collections.abc import Sequence

from shortlist_client.errors import InvalidArgument

PREFIX = "slv_"
IDENTIFIER = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,127}")
FINGERPRINT_BYTES = 9


def check_key(key: str) -> None:
    """Raise InvalidArgument unless this can be sent as an API key."""
    if not (key.isascii() and key.isprintable() and key.strip() == key != ""):
        raise InvalidArgument("key must be printable ASCII without blanks around it")


def visitor_pass(
    key: str, *, visitor: str, expires_in_s: int = 3600, bandits: Sequence[str] | None = None
) -> str:
    """A pass for one visitor, signed here: nothing is sent.

    ``key``           an API key made with ``--visitors``. It stays on the server, the pass goes to the page
    ``visitor``       the ``key`` of choices of bandits of scope per_key, the ``visitor`` of others
    ``expires_in_s``  at most what ``--visitors`` says
    ``bandits``       those that it is for, of the bandits of the key; None: all of them

    The service knows the SHA-256 of the key, and that signs: base64url of a JSON array and its HMAC-SHA256.
    """
    check_key(key)
    if key.startswith(PREFIX):
        raise InvalidArgument("key must be an API key, and not a pass")
    if not IDENTIFIER.fullmatch(visitor):
        raise InvalidArgument("visitor must be letters, digits and . _ : - (at most 128)")
    if isinstance(expires_in_s, bool) or not isinstance(expires_in_s, int) or expires_in_s < 1:
        raise InvalidArgument("expires_in_s must be a whole number of seconds, at least 1")
    if bandits is not None and (isinstance(bandits, str) or not all(map(IDENTIFIER.fullmatch, bandits))):
        raise InvalidArgument("bandits must be a list of names")
    secret = hashlib.sha256(key.encode()).digest()
    fingerprint = _text(hashlib.sha256(secret).digest()[:FINGERPRINT_BYTES])
    terms = [fingerprint, visitor, int(time.time()) + expires_in_s]
    terms += [] if bandits is None else [list(bandits)]
    signed = json.dumps(terms, separators=(",", ":")).encode()
    return PREFIX + _text(signed + hmac.digest(secret, PREFIX.encode() + signed, "sha256"))


def _text(data: bytes) -> str:
    return urlsafe_b64encode(data).rstrip(b"=").decode("ascii")
