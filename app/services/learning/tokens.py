"""Decision tokens: what was chosen, signed, so that nothing needs to be stored per choice.

A token is base64url(number || payload || tag): the number of the secret (4 bytes, big-endian), a msgpack
array, and the first 16 bytes of HMAC-SHA256 over both. Verifying needs no store.
"""

from __future__ import annotations

import binascii
import hmac
import random
from collections.abc import Mapping, Sequence
from typing import Literal

import msgspec
import numpy as np
from numpy.typing import NDArray

from app.errors import ShortlistError
from app.services.formats.logged import LogPart
from app.services.formats.records import bytes_to_context
from app.storage.protocol import DecisionId, LearnerId

TAG_LENGTH = 16
NUMBER_LENGTH = 4
ALWAYS_WRITTEN = 9  # fields of a decision
RejectCode = Literal["invalid_token", "expired"]


class Decision(msgspec.Struct, frozen=True, array_like=True):
    """What a token says: which bandit chose which arms for which learner, and until when it can be rewarded.

    ``learner``     its name within the bandit
    ``revisions``   of the features of each arm, when it was chosen
    ``deferred``    it can be rewarded only after it was activated
    ``known_entry`` number of the newest entry of the reward log that was known, of the learner's partition
    ``bandit_version``  the version of the bandit, by whose terms it is rewarded
    ``context``     as it was encoded, float32
    ``visitor``     whom a global bandit that limits repeats showed it to
    ``logged``      what its row of the decision log holds besides; None: it is not logged
    ``weights``     of the signals of its bandit, in their order; None: it has none

    Fields at the end, after the first nine, are not written where they are as if absent.
    """

    bandit_uid: str
    learner: str
    id: str
    issued_ms: int
    expires_ms: int
    arms: list[str]
    revisions: list[int]
    deferred: bool = False
    known_entry: int | None = None
    bandit_version: int = 1
    context: bytes | None = None
    logged: LogPart | None = None
    visitor: str | None = None
    weights: dict[str, float] | None = None

    @property
    def identity(self) -> DecisionId:
        """Who decided, and which of its decisions it is."""
        return DecisionId(LearnerId(self.bandit_uid, self.learner), self.id)

    @property
    def encoded_context(self) -> NDArray[np.float32] | None:
        """None: the bandit has no context."""
        return None if self.context is None else bytes_to_context(self.context)


_decode = msgspec.msgpack.Decoder(Decision).decode
# As ``base64`` does it for URLs, in fewer steps.
_FROM_URLS, _TO_URLS = bytes.maketrans(b"-_", b"+/"), bytes.maketrans(b"+/", b"-_")


class BadToken(ShortlistError):
    """The token cannot be rewarded. ``reason`` is a code that does not change between versions."""

    def __init__(self, reason: RejectCode) -> None:
        super().__init__(f"the decision token is {reason}")
        self.reason: RejectCode = reason


def raw_of(token: str) -> bytes:
    """The bytes that a token is the text of: a quarter shorter. Raises ValueError."""
    standard = token.encode("ascii").translate(_FROM_URLS)
    return binascii.a2b_base64(standard + b"=" * (-len(token) % 4), strict_mode=True)


def text_of(raw: bytes) -> str:
    """Inverse of ``raw_of``."""
    return binascii.b2a_base64(raw, newline=False).translate(_TO_URLS).rstrip(b"=").decode("ascii")


def decision_of(raw: bytes) -> Decision:
    """What the bytes of a token say. Whether it is genuine is not checked."""
    return _decode(raw[NUMBER_LENGTH:-TAG_LENGTH])


def new_decision_id() -> str:
    """96 random bits as 16 characters: unique, not a secret."""
    raw = random.getrandbits(96).to_bytes(12, "big")
    return binascii.b2a_base64(raw, newline=False).translate(_TO_URLS).decode("ascii")


class TokenSigner:
    """Makes and checks tokens. It knows several secrets by their numbers: see ``token_secrets``."""

    def __init__(self) -> None:
        self._secrets: Mapping[bytes, bytes] = {}
        self._number = b""
        self._secret = b""
        self._encode = msgspec.msgpack.Encoder().encode

    def use(self, secrets: Mapping[int, bytes], *, current: int) -> None:
        """Sign with the ``current`` secret from now on, and accept all of these."""
        self._secrets = {_number(number): secret for number, secret in secrets.items()}
        self._number = _number(current)
        self._secret = secrets[current]

    def sign(self, decision: Decision) -> str:
        return text_of(self.sign_raw(decision))

    def sign_raw(self, decision: Decision) -> bytes:
        """``raw_of`` what ``sign`` makes."""
        signed = self._number + self._encode(_written(decision))
        return signed + _tag(self._secret, signed)

    def verify(self, token: str, *, now_ms: int) -> Decision:
        """Return what was signed. Raises BadToken: ``invalid_token`` (forged, damaged) or ``expired``."""
        try:
            raw = raw_of(token)
        except (ValueError, binascii.Error):
            raise BadToken("invalid_token") from None
        signed, tag = raw[:-TAG_LENGTH], raw[-TAG_LENGTH:]
        secret = self._secrets.get(signed[:NUMBER_LENGTH])
        # Base64 can write the same bytes in several ways. Only the one that ``sign`` makes is accepted.
        if secret is None or text_of(raw) != token or not hmac.compare_digest(tag, _tag(secret, signed)):
            raise BadToken("invalid_token")
        try:
            decision = _decode(signed[NUMBER_LENGTH:])
        except msgspec.DecodeError:
            raise BadToken("invalid_token") from None
        if decision.expires_ms <= now_ms:
            raise BadToken("expired")
        return decision


# Of the fields that need not be written, the last one's first.
_LAST_DEFAULTS = Decision.__struct_defaults__[: ALWAYS_WRITTEN - len(Decision.__struct_fields__) - 1 : -1]


def _written(decision: Decision) -> Sequence[object]:
    fields = msgspec.structs.astuple(decision)
    end = len(fields)
    for default in _LAST_DEFAULTS:
        if fields[end - 1] != default:
            break
        end -= 1
    return fields[:end]


def _number(number: int) -> bytes:
    """The last 32 bits: no two secrets that are kept at the same time have the same."""
    return (number % 2**32).to_bytes(NUMBER_LENGTH, "big")


def _tag(secret: bytes, signed: bytes) -> bytes:
    return hmac.digest(secret, signed, "sha256")[:TAG_LENGTH]
