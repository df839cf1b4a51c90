"""API keys: who may call what. Without keys everything is open, and the service listens on loopback only.

A key is 256 random bits; what is configured is its SHA-256, which is as good as a slow hash for a secret that
nobody can guess. An entry is ``name:scope,scope:digest``; two entries of one name are how a key is replaced.

Scopes
    choose      ask for choices, and for the pulls of campaigns
    reward      send rewards for decisions, and activate them
    observe     send observations and the results of campaigns: they are believed, for any key
    read        everything that changes nothing: reading, one-shot questions, dry runs of choices, metrics
    admin       everything
"""

from __future__ import annotations

import hashlib
import re
import secrets
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from app.platform.errors import StartupError

SCOPES = ("choose", "reward", "observe", "read", "admin")
BROWSER_SAFE = frozenset({"choose", "reward"})
PREFIX = "sl_"

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_DIGEST = re.compile(r"[0-9a-f]{64}")
_OPEN = re.compile(
    r"/|/healthz|/readyz|/openapi\.json|/docs(/swagger-ui-bundle\.js|/swagger-ui\.css)?"
    r"|/console(/[a-z0-9-]*(\.[a-z]+)?)?"
)
# (method, path, scope): the first that matches. What is not here needs admin.
_RULES = (
    ("POST", re.compile(r"/v1/bandits/[^/]+/choose(/batch)?|/v1/(slates|centers)/[^/]+/ask"), "choose"),
    ("POST", re.compile(r"/v1/rewards|/v1/decisions/activate"), "reward"),
    ("POST", re.compile(r"/v1/bandits/[^/]+/observations|/v1/(slates|centers)/[^/]+/tell"), "observe"),
    ("POST", re.compile(r"/v1/(mips|sample)|/v1/catalogues/[^/]+/(mips|sample|centers)"), "read"),
    ("POST", re.compile(r"/v1/bandits/[^/]+/(evaluations|log/explain)"), "read"),
    ("DELETE", re.compile(r"/v1/bandits/[^/]+/evaluations/[^/]+"), "read"),
    (
        "GET",
        re.compile(r"/metrics|/v1/(status|policies)|/v1/(catalogues|bandits|slates|centers)(/[^/]+)?"),
        "read",
    ),
    (
        "GET",
        re.compile(
            r"/v1/catalogues/[^/]+/arms(/[^/]+)?|/v1/bandits/[^/]+/(versions|prior|learners(/[^/]+(/sets)?)?)"
        ),
        "read",
    ),
    ("GET", re.compile(r"/v1/bandits/[^/]+/(report|(log|quotas|evaluations)(/[^/]+)?)"), "read"),
)
# Its body says whether it is a choice or a dry run, which needs "read" instead.
_CHOICE = re.compile(r"/v1/bandits/[^/]+/choose")


@dataclass(frozen=True, slots=True)
class ApiKey:
    """What is known of a key: never the key itself."""

    name: str
    scopes: frozenset[str]

    def allows(self, scope: str) -> bool:
        return scope in self.scopes or "admin" in self.scopes

    @property
    def is_browser_safe(self) -> bool:
        """Whether it may be given to everyone who opens a page: it can choose and reward, nothing else."""
        return self.scopes <= BROWSER_SAFE


class ApiKeys:
    """The configured keys by digest; empty means that none is asked for."""

    def __init__(self, entries: Iterable[str]) -> None:
        self._by_digest = dict(map(_parsed, entries))

    def __bool__(self) -> bool:
        return bool(self._by_digest)

    def find(self, key: bytes) -> ApiKey | None:
        """The key, if it is one of ours. What time tells is about its digest, which leads to no key."""
        return self._by_digest.get(hashlib.sha256(key).digest())


def scope_of(method: str, path: str) -> str | None:
    """The scope that a call needs; None when it is open to all.

    A / at the end leads nowhere: who may call the path without it is told so.
    """
    method, path = "GET" if method == "HEAD" else method, path.rstrip("/") or "/"
    if _OPEN.fullmatch(path):
        return None
    for allowed, pattern, scope in _RULES:
        if method == allowed and pattern.fullmatch(path):
            return scope
    return "admin"


def may_be_dry_run(method: str, path: str) -> bool:
    """Whether a call that needs "choose" may turn out to be a dry run, once its body is read."""
    return method == "POST" and _CHOICE.fullmatch(path) is not None


def configured(inline: str, file: Path | None) -> ApiKeys:
    """The keys of a setting and of a file. Raises StartupError, which names the entry and not its digest."""
    entries = inline.split()
    if file is not None:
        try:
            lines = file.read_text().splitlines()
        except (OSError, UnicodeDecodeError):
            raise StartupError(f"the file of API keys {file} cannot be read") from None
        entries += [word for line in lines for word in line.partition("#")[0].split()]
        if not entries:
            raise StartupError(f"the file of API keys {file} holds no key")
    return ApiKeys(entries)


def new_key(name: str, scopes: Iterable[str]) -> tuple[str, str]:
    """(key, entry): the key is for the client and is nowhere kept, the entry is for the service."""
    key = PREFIX + secrets.token_urlsafe(32)
    entry = f"{name}:{','.join(scopes)}:{hashlib.sha256(key.encode()).hexdigest()}"
    _parsed(entry)
    return key, entry


def _parsed(entry: str) -> tuple[bytes, ApiKey]:
    name, _, rest = entry.partition(":")
    scopes, _, digest = rest.partition(":")
    if not _NAME.fullmatch(name):
        raise StartupError("an API key must be written name:scope,scope:digest, and its name have no spaces")
    chosen = frozenset(scopes.split(","))
    if not chosen <= set(SCOPES):
        raise StartupError(f"the scopes of the API key {name} must be of {', '.join(SCOPES)}")
    if not _DIGEST.fullmatch(digest):
        raise StartupError(f"the API key {name} must end in the SHA-256 of the key, 64 hexadecimal digits")
    return bytes.fromhex(digest), ApiKey(name, chosen)
