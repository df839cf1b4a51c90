"""Decision tokens, which name the chosen arms, and the secrets that sign them.

A choice stores nothing: the signed token has all that a later reward needs. A token is base64url(number ||
payload || tag): the number of the secret (4 bytes, big-endian), a msgpack array, and the first 16 bytes of
HMAC-SHA256 over both. Verifying needs no store.

There is one secret for each period of time. Period n lasts from n to n + 1 times ``period_ms`` of the clock.
The first process to need a secret puts one into the store. The secret of the next period is there a whole
period ahead, so no process meets a token before its secret. A secret is kept until the last token it signed
has expired. Secrets belong to their ``period_ms``: another length makes all tokens invalid at once.
"""

from __future__ import annotations

import asyncio
import binascii
import hashlib
import hmac
import os
import random
import time
from collections.abc import Collection, Mapping
from typing import Literal

import msgspec
import numpy as np
from numpy.typing import NDArray

from app.platform.background import repeat
from app.platform.errors import ShortlistError
from app.records.age_sums import AtAge, age_at
from app.records.arm_sums import EffectPair, pair_at
from app.records.logged import LogPart
from app.records.records import bytes_to_context
from app.storage.store import Store
from app.storage.types import DecisionId, LearnerId
from shortlist.types import Vector

TAG_LENGTH = 16
NUMBER_LENGTH = 4
ALWAYS_WRITTEN = 9  # fields of a decision
RejectCode = Literal["invalid_token", "expired", "unknown_event", "unknown_bandit"]
# As ``base64`` does for URLs, in fewer steps.
_FROM_URLS, _TO_URLS = bytes.maketrans(b"-_", b"+/"), bytes.maketrans(b"+/", b"-_")
REFRESH_EVERY_S = 60.0
SECRET_BYTES = 32


class Decision(msgspec.Struct, frozen=True, array_like=True):
    """What a token says: which bandit chose which arms for which learner, and until when it can be rewarded.

    ``learner``     its name within the bandit
    ``revisions``   of the features of each arm, when it was chosen
    ``deferred``    it can be rewarded only after it was activated
    ``known_entry`` number of the newest entry of the reward log that was known, of the learner's partition
    ``bandit_version``  the version of the bandit, by whose terms it is rewarded
    ``context``     as it was encoded, float32
    ``visitor``     whom a global bandit with a frequency cap showed it to
    ``logged``      what its row of the decision log holds besides; None: it is not logged
    ``weights``     of the signals of its bandit, in their order; None: it has none
    ``owner``       the visitor with whose pass it was chosen: no other pass may reward it
    ``effects``     of each arm what was expected of it, and the effect that it was served with
                    (``records.arm_sums``), then of each how old it was (``records.age_sums``), if that is
                    known of any; None: it was chosen without arm effects
    ``carried``     of each arm the numbers that no store has, float32: they follow those of the catalogue,
                    which an arm of the request has none of (its revision is ``OF_REQUEST``); None: no arm has
                    any
    ``places``      what its bandit had learned of the places of the list (``records.place_sums``); None: of a
                    bandit that learns nothing of places, or of one arm alone

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
    known_entry: int = 0
    bandit_version: int = 1
    context: bytes | None = None
    logged: LogPart | None = None
    visitor: str | None = None
    weights: dict[str, float] | None = None
    owner: str | None = None
    effects: bytes | None = None
    carried: list[bytes] | None = None
    places: bytes | None = None

    def carried_at(self, position: int) -> Vector | None:
        """The carried numbers of the arm at a place, (m,); None: no numbers."""
        if self.carried is None or not self.carried[position]:
            return None
        return np.frombuffer(self.carried[position], dtype="<f4").astype(np.float64)

    def effect_at(self, position: int) -> EffectPair | None:
        """The expected reward and the effect of the arm at a place; None: chosen without effects."""
        return None if self.effects is None else pair_at(self.effects, position, len(self.arms))

    def age_at(self, position: int) -> AtAge | None:
        """How old the arm at a place was, and what that added; None: that is not known."""
        return None if self.effects is None else age_at(self.effects, position, len(self.arms))

    @property
    def identity(self) -> DecisionId:
        """The learner and the name of the decision."""
        return DecisionId(LearnerId(self.bandit_uid, self.learner), self.id)

    @property
    def encoded_context(self) -> NDArray[np.float32] | None:
        """None: the bandit has no context."""
        return None if self.context is None else bytes_to_context(self.context)


class Access(msgspec.Struct, frozen=True):
    """The decisions somebody may reward and activate.

    ``bandits``  only of these bandits; None: of all
    ``owner``    only choices with the pass of this visitor; None: anybody's
    """

    bandits: Collection[str] | None = None
    owner: str | None = None

    def owns(self, decision: Decision) -> bool:
        """Return whether the caller owns a decision of a bandit he may use."""
        return self.owner is None or decision.owner == self.owner


class BadToken(ShortlistError):
    """The token cannot be rewarded, or there is none. ``reason``: a code, the same in all versions."""

    def __init__(self, reason: RejectCode) -> None:
        super().__init__(f"the decision token is {reason}")
        self.reason: RejectCode = reason


def raw_of(token: str) -> bytes:
    """The bytes of the text of a token: a quarter shorter. Raises ValueError."""
    standard = token.encode("ascii").translate(_FROM_URLS)
    return binascii.a2b_base64(standard + b"=" * (-len(token) % 4), strict_mode=True)


def text_of(raw: bytes) -> str:
    """Inverse of ``raw_of``."""
    return binascii.b2a_base64(raw, newline=False).translate(_TO_URLS).rstrip(b"=").decode("ascii")


def decision_of(raw: bytes) -> Decision:
    """The content of the bytes of a token. The tag is not checked."""
    return msgspec.msgpack.decode(raw[NUMBER_LENGTH:-TAG_LENGTH], type=Decision)


def new_decision_id() -> str:
    """96 random bits as 16 characters: unique, not a secret."""
    # Not ``secrets``: an id has to be unique, not secret, and a call of the system for each choice would cost
    # more than the signature.
    raw = random.getrandbits(96).to_bytes(12, "big")
    return binascii.b2a_base64(raw, newline=False).translate(_TO_URLS).decode("ascii")


class KeyedHash:
    """HMAC-SHA256 of one secret (RFC 2104), whose padded key is hashed once: less than half of the time.

    ``secret``: at most 64 bytes.
    """

    def __init__(self, secret: bytes) -> None:
        padded = secret.ljust(hashlib.sha256().block_size, b"\0")
        self._inner = hashlib.sha256(bytes(byte ^ 0x36 for byte in padded))
        self._outer = hashlib.sha256(bytes(byte ^ 0x5C for byte in padded))

    def tag(self, signed: bytes) -> bytes:
        """The first bytes of the HMAC. ``signed``: all of it."""
        inner, outer = self._inner.copy(), self._outer.copy()
        inner.update(signed)
        outer.update(inner.digest())
        return outer.digest()[:TAG_LENGTH]


class TokenSigner:
    """Makes and checks tokens. Knows several secrets by their numbers: see ``TokenSecrets``."""

    def __init__(self) -> None:
        self._secrets: Mapping[bytes, KeyedHash] = {}
        self._number = b""
        self._secret = KeyedHash(b"")
        self._encode = msgspec.msgpack.Encoder().encode
        self._decode = msgspec.msgpack.Decoder(Decision).decode
        # Of the fields that need not be written, the last one's first.
        fields, defaults = len(Decision.__struct_fields__), Decision.__struct_defaults__
        self._last_defaults = defaults[: ALWAYS_WRITTEN - fields - 1 : -1]

    def use(self, secrets: Mapping[int, bytes], *, current: int) -> None:
        """Sign with the ``current`` secret from now on, and accept all of these."""
        self._secrets = {_number(number): KeyedHash(secret) for number, secret in secrets.items()}
        self._number = _number(current)
        self._secret = self._secrets[self._number]

    def sign(self, decision: Decision) -> str:
        return text_of(self.sign_raw(decision))

    def sign_raw(self, decision: Decision) -> bytes:
        """``raw_of`` what ``sign`` makes."""
        fields = msgspec.structs.astuple(decision)
        end = len(fields)
        # most decisions use few of the later fields: without them the token is shorter
        for default in self._last_defaults:
            if fields[end - 1] != default:
                break
            end -= 1
        signed = self._number + self._encode(fields[:end])
        return signed + self._secret.tag(signed)

    def verify(self, token: str, *, now_ms: int) -> Decision:
        """Return what was signed. Raises BadToken: ``invalid_token`` (forged, damaged) or ``expired``."""
        try:
            raw = raw_of(token)
        except (ValueError, binascii.Error):
            raise BadToken("invalid_token") from None
        signed, tag = raw[:-TAG_LENGTH], raw[-TAG_LENGTH:]
        secret = self._secrets.get(signed[:NUMBER_LENGTH])
        # Base64 can write the same bytes in several ways. Only the text of ``sign`` is accepted.
        if secret is None or text_of(raw) != token or not hmac.compare_digest(tag, secret.tag(signed)):
            raise BadToken("invalid_token")
        try:
            # After the tag is checked: nobody's bytes but our own are ever decoded.
            decision = self._decode(signed[NUMBER_LENGTH:])
        except msgspec.DecodeError:
            raise BadToken("invalid_token") from None
        # Last: a forged token is called forged, also after its time.
        if decision.expires_ms <= now_ms:
            raise BadToken("expired")
        return decision


def _number(number: int) -> bytes:
    """The last 32 bits: different for all secrets kept at the same time."""
    return (number % 2**32).to_bytes(NUMBER_LENGTH, "big")


class TokenSecrets:
    """Gives ``signer`` its secrets. ``refresh`` before use, then ``run``.

    ``token_ttl_ms``: how long a token is valid. ``refresh_every_s``: at least.
    """

    def __init__(
        self,
        store: Store,
        signer: TokenSigner,
        *,
        period_ms: int,
        token_ttl_ms: int,
        refresh_every_s: float = REFRESH_EVERY_S,
    ) -> None:
        self.refresh_every_s = refresh_every_s
        self._store = store
        self._signer = signer
        self._period_ms = period_ms
        # Rounded up: a token of the last moment of a period lives on into one more.
        self._periods_kept = -(-token_ttl_ms // period_ms) + 1
        self.secrets: dict[int, bytes] = {}

    async def refresh(self) -> None:
        """Fetch the secrets of this period, of the next one, and of all periods whose tokens may be valid."""
        now = time.time_ns() // 1_000_000 // self._period_ms
        oldest = now - self._periods_kept
        # To the period after this one: another process whose clock is ahead may sign with it already.
        wanted = [period for period in range(oldest, now + 2) if period not in self.secrets]
        result = await asyncio.gather(*(self._secret(period, now) for period in wanted))
        still_valid = {period: secret for period, secret in self.secrets.items() if period >= oldest}
        self.secrets = still_valid | {
            p: secret for p, secret in zip(wanted, result, strict=True) if secret is not None
        }
        self._signer.use(self.secrets, current=now)

    async def run(self) -> None:
        """Refresh until cancelled. While the store does not answer, the secrets at hand stay in use."""
        # At least four times in a period, so that one missed refresh leaves no process without the secret of
        # the next.
        every_s = min(self.refresh_every_s, self._period_ms / 4_000)
        await repeat(self.refresh, every_s=every_s, waits="the secret of tokens stays")

    async def _secret(self, period: int, now: int) -> bytes | None:
        name = f"token-secret/{self._period_ms}/{period}"
        if period < now:  # if there is none, no token was signed in that period
            return await self._store.write_once.get(None, name)
        # Two periods more than are accepted: a secret that expired in the store too early could be made again
        # with other bytes.
        ttl_ms = (period - now + self._periods_kept + 2) * self._period_ms
        return await self._store.write_once.put(None, name, os.urandom(SECRET_BYTES), ttl_ms=ttl_ms)
