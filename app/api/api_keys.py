"""API keys: who may call what. Without keys everything is open, and the service listens on loopback only.

A key is 256 random bits; its SHA-256 is configured, as good as a slow hash for a secret which nobody can
guess. An entry is ``name:scopes[;restrictions]:digest``; with two entries of one name a key is replaced.

docs/security.md says what scopes and restrictions allow.

A pass is ``slv_`` and the base64url of a JSON array and its HMAC-SHA256: [which key, visitor, when it ends in
seconds since 1970, bandits if they are fewer]. The key of the HMAC is the digest of the API key, which both
sides know; the SHA-256 of the digest names the key. So an entry with ``visitors`` is a secret: it signs.
"""

from __future__ import annotations

import hashlib
import hmac
import math
import re
import secrets
import time
from base64 import urlsafe_b64encode
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

import msgspec
from fastapi import Response

from app.platform.errors import PassExpired, ShortlistError, StartupError, Unauthorized
from app.platform.ids import is_identifier
from app.rewards.tokens import Access, raw_of, text_of

SCOPES = ("choose", "reward", "observe", "read", "admin")
BROWSER_SAFE = frozenset({"choose", "reward"})
PREFIX = "sl_"
PASS_PREFIX = b"slv_"
MAX_RATE = 1_000_000
MAX_VISITORS_S = 31 * 86_400
LEEWAY_S = 60  # between the clocks of who signs a pass and of this service

_TAG_BYTES, _FINGERPRINT_BYTES = 32, 9
_RATE = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,9})?)/s")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_DIGEST = re.compile(r"[0-9a-f]{64}")
_OPEN = re.compile(
    r"/|/healthz|/readyz|/openapi\.json|/docs(/swagger-ui-bundle\.js|/swagger-ui\.css)?"
    r"|/console(/[a-z0-9-]*(\.[a-z]+)?)?"
)
# (method, path, scope): the first match counts. All other calls need admin.
_RULES = [
    ("POST", re.compile(r"/v1/bandits/[^/]+/choose(/batch)?|/v1/choose/batch"), "choose"),
    ("POST", re.compile(r"/v1/rewards|/v1/decisions/activate|/v1/activations"), "reward"),
    ("POST", re.compile(r"/v1/bandits/[^/]+/observations"), "observe"),
    ("POST", re.compile(r"/v1/mips|/v1/catalogues/[^/]+/mips"), "read"),
    ("POST", re.compile(r"/v1/bandits/[^/]+/log/explain"), "read"),
    ("GET", re.compile(r"/metrics|/v1/(status|policies)|/v1/(catalogues|bandits)(/[^/]+)?"), "read"),
    (
        "GET",
        re.compile(
            r"/v1/catalogues/[^/]+/(fields|arms(/[^/]+)?)"
            r"|/v1/bandits/[^/]+/(versions|prior|arm-effects(/[^/]+)?|learners(/[^/]+(/(sets|exposures))?)?)"
        ),
        "read",
    ),
    (
        "GET",
        re.compile(r"/v1/bandits/[^/]+/(report|(log|quotas)(/[^/]+)?)"),
        "read",
    ),
]
PROTOCOLS: dict[str, OtherProtocol] = {}  # by the first part of a path
# All calls open to a pass; it rewards and activates its own decisions only.
_OF_PASSES = re.compile(
    r"/v1/(bandits/[^/]+/choose(/batch)?|choose/batch|rewards|decisions/activate|activations)"
)
# Its body says whether it is a choice or a dry run, which needs "read" instead.
_CHOICE = re.compile(r"/v1/bandits/[^/]+/choose")
_RESTRICTIONS = frozenset({"bandits", "catalogues", "rate", "visitors", "candidates"})


@dataclass(frozen=True, slots=True)
class ApiKey:
    """A configured key, without the key itself. A pass is its key with fewer rights: see ``visitor``.

    ``bandits``, ``catalogues``: the visible ones, besides the catalogues of these bandits; None: everything
    ``rate``        requests a second
    ``visitors_s``  bound of the lifetime of passes signed with the key; None: it signs none
    ``visitor``     of a pass: whom it is for
    ``full_candidates``  its passes may bring arms of their own, beside candidates by id
    """

    name: str
    scopes: frozenset[str]
    bandits: frozenset[str] | None = None
    catalogues: frozenset[str] | None = None
    rate: float | None = None
    visitors_s: int | None = None
    visitor: str | None = None
    full_candidates: bool = False

    def allows(self, scope: str) -> bool:
        return scope in self.scopes or "admin" in self.scopes

    @property
    def access(self) -> Access:
        """The decisions which may be rewarded with the key."""
        return Access(self.bandits, self.visitor)

    @property
    def is_browser_safe(self) -> bool:
        """True if the key may be given to everyone who opens a page: it can choose and reward, nothing
        else.
        """
        return self.scopes <= BROWSER_SAFE


@dataclass(frozen=True, slots=True)
class OtherProtocol:
    """The API key and the errors of requests of another protocol.

    ``key_header``  in lower case; its whole value is the key
    ``refuse``      makes the answer of an error and a method
    """

    key_header: bytes
    refuse: Callable[[ShortlistError, str], Response]


class VisitorPass(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """The content of a pass: the signing key, the visitor, the end (s since 1970), and the bandits."""

    fingerprint: str
    visitor: str
    expires_s: Annotated[int, msgspec.Meta(ge=0, lt=10**11)]
    bandits: list[str] | None = None


class ApiKeys:
    """The configured keys by digest; empty: no key is needed."""

    def __init__(self, entries: Iterable[str]) -> None:
        self._by_digest: dict[bytes, ApiKey] = {}
        for digest, key in map(_parsed, entries):
            # The same entry twice, in the setting and in the file, is harmless.
            if self._by_digest.setdefault(digest, key) != key:
                raise StartupError(f"two entries with the digest of the API key {key.name} differ: keep one")
        self.is_empty = not self._by_digest
        self._signers = {_fingerprint(digest): digest for digest in self._by_digest}

    def __iter__(self) -> Iterator[ApiKey]:
        return iter(self._by_digest.values())

    def find(self, key: bytes) -> ApiKey | None:
        """The key, if configured. Time leaks only the digest, which leads to no key.

        Raises Unauthorized, of a pass.
        """
        if key.startswith(PASS_PREFIX):
            return self._of_pass(key)
        return self._by_digest.get(hashlib.sha256(key).digest())

    def _of_pass(self, text: bytes) -> ApiKey:
        """The signing key of a pass, with only the rights of the pass. Raises Unauthorized, PassExpired."""
        try:
            encoded = text[len(PASS_PREFIX) :].decode("ascii")
            raw = raw_of(encoded)
            signed, tag = raw[:-_TAG_BYTES], raw[-_TAG_BYTES:]
            signed_pass = msgspec.json.decode(signed, type=VisitorPass)
        except (ValueError, msgspec.MsgspecError):
            raise Unauthorized("the pass is damaged") from None
        digest = self._signers.get(signed_pass.fingerprint)
        # base64 can write the same bytes in several ways: only one is accepted
        if (
            digest is None
            or text_of(raw) != encoded
            or not hmac.compare_digest(tag, hmac.digest(digest, PASS_PREFIX + signed, "sha256"))
        ):
            raise Unauthorized("the pass was not signed by an API key that is known")
        key, left_s = self._by_digest[digest], signed_pass.expires_s - time.time()
        if key.visitors_s is None:
            raise Unauthorized("the API key of this pass may sign none: its entry needs visitors=SECONDS")
        if not is_identifier(signed_pass.visitor):
            raise Unauthorized("the visitor of the pass is no identifier")
        if left_s <= -LEEWAY_S:
            raise PassExpired("the pass has expired: get a new one from who gave it")
        # Whoever signs passes may not extend what its entry allows, by a bug or on purpose.
        if left_s > key.visitors_s + LEEWAY_S:
            raise Unauthorized(f"the pass lasts longer than its API key allows, {key.visitors_s} s")
        bandits, named = key.bandits, signed_pass.bandits
        if named is not None:
            # A pass can only narrow what its key has.
            bandits = frozenset(named) if bandits is None else bandits.intersection(named)
        scopes = frozenset(filter(key.allows, BROWSER_SAFE))
        return replace(key, scopes=scopes, bandits=bandits, visitors_s=None, visitor=signed_pass.visitor)


def scope_of(method: str, path: str) -> str | None:
    """The scope that a call needs; None when it is open to all.

    A / at the end leads nowhere: callers with access to the path without the / are told so.
    """
    method, path = "GET" if method == "HEAD" else method, path.rstrip("/") or "/"
    if _OPEN.fullmatch(path):
        return None
    for allowed, pattern, scope in _RULES:
        if method == allowed and pattern.fullmatch(path):
            return scope
    # Unlisted calls are for admin: a new call is closed until somebody opens it.
    return "admin"


def open_path(method: str, path: str, scope: str) -> None:
    """Have a call of a plug-in need a scope. ``path`` as routes have it: /v1/sizes/{catalogue}."""
    pattern = re.sub(r"\\{\w+(:path)?\\}", lambda found: ".+" if found[1] else "[^/]+", re.escape(path))
    _RULES.append((method, re.compile(pattern), scope))


def open_protocol(prefix: str, protocol: OtherProtocol) -> None:
    """Have all calls below ``prefix``, such as /personalizer, speak another protocol than ours."""
    PROTOCOLS[prefix.removeprefix("/")] = protocol


def is_for_passes(method: str, path: str) -> bool:
    """Return whether the pass of a visitor may be used for a call at all."""
    return method == "POST" and _OF_PASSES.fullmatch(path.rstrip("/")) is not None


def may_be_dry_run(method: str, path: str) -> bool:
    """Return whether a call with need of "choose" may turn out to be a dry run, once its body is read."""
    return method == "POST" and _CHOICE.fullmatch(path) is not None


def configured(inline: str, file: Path | None) -> ApiKeys:
    """The keys of a setting and of a file. Raises StartupError, which names entry and line, and no digest."""
    entries = inline.split()
    if file is not None:
        try:
            lines = file.read_text(encoding="utf-8-sig").splitlines()  # some editors write a mark
        except (OSError, UnicodeDecodeError):
            raise StartupError(f"the file of API keys {file} cannot be read") from None
        for number, line in enumerate(lines, 1):
            for entry in line.partition("#")[0].split():
                try:
                    _parsed(entry)
                except StartupError as error:
                    raise StartupError(f"{file}, line {number}: {error.detail}") from None
                entries.append(entry)
        if not entries:
            raise StartupError(f"the file of API keys {file} holds no key")
    return ApiKeys(entries)


def new_key(name: str, scopes: Iterable[str], restrictions: Mapping[str, str] = {}) -> tuple[str, str]:
    """(key, entry): the key is for the client and is nowhere kept, the entry is for the service.

    Raises StartupError.
    """
    key = PREFIX + secrets.token_urlsafe(32)
    terms = ";".join([",".join(scopes), *(f"{what}={value}" for what, value in restrictions.items())])
    entry = f"{name}:{terms}:{hashlib.sha256(key.encode()).hexdigest()}"
    _parsed(entry)
    return key, entry


def _parsed(entry: str) -> tuple[bytes, ApiKey]:
    name, described, after_name = entry.partition(":")
    # Without a colon it is perhaps the key itself, which no log may show.
    if not described or not _NAME.fullmatch(name):
        raise StartupError(
            "an API key must be written name:scope,scope:digest, as the entry that shortlist key prints, and "
            "its name have no spaces"
        )
    terms, colon, digest = after_name.rpartition(":")  # names of bandits may have colons
    if not colon:
        terms, digest = digest, ""
    scopes, *given_terms = terms.split(";")
    chosen = frozenset(scopes.split(","))
    if not chosen <= set(SCOPES):
        raise StartupError(f"the scopes of the API key {name} must be of {', '.join(SCOPES)}")
    restrictions = dict(term.partition("=")[::2] for term in given_terms)
    if len(restrictions) < len(given_terms) or not restrictions.keys() <= _RESTRICTIONS:
        raise StartupError(
            f"the API key {name} may have ;bandits= ;catalogues= ;rate= ;visitors= ;candidates= after its "
            "scopes, once"
        )
    if not _DIGEST.fullmatch(digest):
        raise StartupError(f"the API key {name} must end in the SHA-256 of the key, 64 hexadecimal digits")
    key = ApiKey(name, chosen)
    if "bandits" in restrictions or "catalogues" in restrictions:
        bandits, catalogues = (_names(name, what, restrictions) for what in ("bandits", "catalogues"))
        key = replace(key, bandits=bandits, catalogues=catalogues)
    if (rate := restrictions.get("rate")) is not None:
        key = replace(key, rate=_rate(name, rate))
    if (visitors := restrictions.get("visitors")) is not None:
        key = replace(key, visitors_s=_visitors_s(name, visitors))
    if (candidates := restrictions.get("candidates")) is not None:
        if candidates != "full" or key.visitors_s is None:
            raise StartupError(
                f"candidates of the API key {name} must be full, beside visitors: it is of its passes"
            )
        key = replace(key, full_candidates=True)
    return bytes.fromhex(digest), key


def _names(key: str, what: str, restrictions: Mapping[str, str]) -> frozenset[str]:
    names = frozenset(restrictions[what].split(",")) if what in restrictions else frozenset[str]()
    if not all(map(is_identifier, names)):
        raise StartupError(f"{what} of the API key {key} must be names, separated by commas")
    return names


def _rate(key: str, text: str) -> float:
    parts = _RATE.fullmatch(text)
    rate = float(parts[1]) if parts else math.nan
    if not 0 < rate <= MAX_RATE:
        raise StartupError(
            f"rate of the API key {key} must be above 0 and at most {MAX_RATE:,} a second, such as 50/s; "
            "leave it out for no limit"
        )
    return rate


def _visitors_s(key: str, text: str) -> int:
    seconds = int(text) if re.fullmatch(r"[0-9]{1,9}", text) else 0
    if not 1 <= seconds <= MAX_VISITORS_S:
        raise StartupError(
            f"visitors of the API key {key} must be how long its passes may last: 1 to {MAX_VISITORS_S} s"
        )
    return seconds


def _fingerprint(digest: bytes) -> str:
    """The name of a signing key in its passes; it leads neither to the key nor to its digest."""
    return urlsafe_b64encode(hashlib.sha256(digest).digest()[:_FINGERPRINT_BYTES]).decode("ascii")
