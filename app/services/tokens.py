"""Decision tokens: what was chosen, signed, so that nothing needs to be stored per choice.

A token is base64url(payload || tag): the payload is a msgpack array, the tag the first 16 bytes of
HMAC-SHA256 over it. Verifying needs no store.
"""

from __future__ import annotations

import base64
import binascii
import hmac
import os
from typing import Literal

import msgspec

from app.errors import ShortlistError

TAG_LENGTH = 16
RejectCode = Literal["invalid_token", "expired"]


class Decision(msgspec.Struct, frozen=True, array_like=True):
    """What a token says: who chose which versions of which arms for whom, and until when it counts.

    A ``deferred`` decision can be rewarded only once it was activated.
    """

    bandit_uid: str
    learner: str
    id: str
    issued_ms: int
    expires_ms: int
    arms: list[str]
    revisions: list[int]
    deferred: bool = False


class BadToken(ShortlistError):
    """The token cannot be rewarded; ``reason`` is the stable word for it."""

    def __init__(self, reason: RejectCode) -> None:
        super().__init__(f"the decision token is {reason}")
        self.reason: RejectCode = reason


def new_decision_id() -> str:
    """96 random bits, 16 characters."""
    return base64.urlsafe_b64encode(os.urandom(12)).decode("ascii")


class TokenSigner:
    """Makes and checks tokens; the secret comes from the store when the service starts."""

    def __init__(self, secret: bytes = b"") -> None:
        self._secret = secret
        self._encode = msgspec.msgpack.Encoder().encode
        self._decode = msgspec.msgpack.Decoder(Decision).decode

    def use(self, secret: bytes) -> None:
        self._secret = secret

    def sign(self, decision: Decision) -> str:
        payload = self._encode(decision)
        return _text(payload + self._tag(payload))

    def verify(self, token: str, *, now_ms: int) -> Decision:
        """Return what was signed. Raises BadToken: ``invalid_token`` (forged, damaged) or ``expired``."""
        try:
            raw = base64.b64decode(token + "=" * (-len(token) % 4), altchars=b"-_", validate=True)
        except (ValueError, binascii.Error):
            raise BadToken("invalid_token") from None
        payload, tag = raw[:-TAG_LENGTH], raw[-TAG_LENGTH:]
        # Base64 has several spellings of the same bytes: only ours is a token.
        if _text(raw) != token or not payload or not hmac.compare_digest(tag, self._tag(payload)):
            raise BadToken("invalid_token")
        try:
            decision = self._decode(payload)
        except msgspec.DecodeError:
            raise BadToken("invalid_token") from None
        if decision.expires_ms <= now_ms:
            raise BadToken("expired")
        return decision

    def _tag(self, payload: bytes) -> bytes:
        return hmac.digest(self._secret, payload, "sha256")[:TAG_LENGTH]


def _text(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode("ascii")
