"""Who is let in: API keys by scope, restriction and rate; pages of other origins only where they are listed.

A page of any site can send requests to addresses which only its visitor reaches, this machine's
loopback among them. So a request that names an origin is refused unless the origin is listed, or is this
service itself. Any name can be made to lead to loopback, so without keys a request must also be to a name of
loopback, or to a listed one.
"""

from __future__ import annotations

import asyncio
import logging
from functools import lru_cache
from pathlib import Path
from typing import Any, cast
from urllib.parse import urlsplit

from fastapi import Request
from starlette.types import Scope

from app.api.api_keys import (
    PROTOCOLS,
    ApiKey,
    OtherProtocol,
    configured,
    is_for_passes,
    may_be_dry_run,
    scope_of,
)
from app.api.problems import headers_of
from app.bandits.served_bandits import Bandits
from app.catalogues.catalogues import Catalogues
from app.platform.errors import (
    BadRequest,
    Forbidden,
    NotFound,
    ShortlistError,
    StartupError,
    Unauthorized,
)
from app.platform.settings import ORIGIN, Settings, is_loopback
from app.rewards.tokens import Access

log = logging.getLogger("shortlist.http")

WATCH_EVERY_S = 1.0
KEY = "shortlist.key"  # in the scope of a request: its API key, where keys are configured
INNER = "shortlist.inner"  # likewise: the call is made for a request that was let in with this key
EXPOSED = "x-request-id, retry-after"  # headers of answers that pages of other origins may read
MOST_LOGGED = 100  # origins that were refused, each once

Headers = list[tuple[bytes, bytes]]
# The same as for a missing one: whether an invisible bandit or catalogue exists must not be told.
_NONE_OF = {
    "bandits": "there is no bandit with this name",
    "catalogues": "there is no catalogue with this name",
}
# What a restricted key may call besides: what these answer is of its own bandits, or of no bandit.
_FOR_ALL = frozenset({"activations", "rewards", "decisions", "policies", "choose"})


class Guard:
    """``check`` every request; ``watch_file`` while the service runs, so that changed keys are read."""

    def __init__(self, settings: Settings) -> None:
        self._inline = settings.api_keys.get_secret_value() if settings.api_keys else ""
        self._file: Path | None = settings.api_keys_file
        # Size and time, read before the file: a change while it is read is seen the next time.
        self._stamp = self._stamp_now()
        self._keys = configured(self._inline, self._file)
        self._origins = frozenset(settings.origins)
        self._hosts = frozenset(settings.host_names)
        self._refused: set[str] = set()

    def check(self, scope: Scope) -> None:
        """Raise BadRequest, Unauthorized, Forbidden, NotFound or TooManyRequests unless the request may pass.

        Nothing of its body was read then, and nothing is done.
        """
        if INNER in scope:  # the request that it is made for was checked, and counts once against the rate
            if (key := scope[KEY]) is not None and (needed := scope_of(scope["method"], scope["path"])):
                _check_use(scope, key, needed)
            return
        protocol = protocol_of(scope["path"])
        key_header = b"authorization" if protocol is None else protocol.key_header
        origin = host = authorization = None
        for name, value in scope["headers"]:
            if name == b"origin":
                origin = _only(name, origin, value)
            elif name == b"host":
                host = _only(name, host, value)
            elif name == key_header:
                authorization = _only(name, authorization, value)
        origin, host, authorization = origin or b"", host or b"", authorization or b""
        if host and (self._hosts or self._keys.is_empty):
            self._check_host(host)
        listed = self._is_listed(origin)
        if listed and scope["method"] == "OPTIONS":
            return  # a page's browser asks what it may send, without a key
        if origin and not listed and not self._is_own(origin.decode("latin-1"), host.decode("latin-1")):
            self._log_refused(origin)
            raise Forbidden("this origin is not listed in SHORTLIST_CORS_ORIGINS")
        if not self._keys.is_empty:
            self._check_key(scope, authorization, from_page=listed)

    def refusal_headers(self, scope: Scope, error: ShortlistError) -> Headers:
        """The headers of a refusal, beside the problem."""
        headers = [(b"www-authenticate", b"Bearer")] if isinstance(error, Unauthorized) else []
        headers += [(name.lower().encode(), value.encode()) for name, value in headers_of(error).items()]
        return headers + self.origin_headers(scope)

    def origin_headers(self, scope: Scope) -> Headers:
        """The headers by which a page of a listed origin may read an answer; none for others."""
        origin = next((value for name, value in scope["headers"] if name == b"origin"), b"")
        if not self._is_listed(origin):
            return []
        exposed = (b"access-control-expose-headers", EXPOSED.encode())
        return [(b"access-control-allow-origin", origin), (b"vary", b"Origin"), exposed]

    def warn_of_unknown(self, bandits: Bandits, catalogues: Catalogues) -> None:
        """Log the missing bandits and catalogues named by keys: they may come."""
        names = {
            "bandit": {bandit.name for bandit in bandits},
            "catalogue": {catalogue.name for catalogue in catalogues},
        }
        for key in self._keys:
            for kind, named in (("bandit", key.bandits), ("catalogue", key.catalogues)):
                for name in sorted((named or frozenset()) - names[kind]):
                    log.warning("the API key %s names the %s %s, which does not exist", key.name, kind, name)

    async def watch_file(self, bandits: Bandits, catalogues: Catalogues) -> None:
        """Read the file of keys again when it has changed, until cancelled; a bad one changes nothing."""
        while self._file is not None:
            await asyncio.sleep(WATCH_EVERY_S)
            stamp = self._stamp_now()
            if stamp == self._stamp:
                continue
            self._stamp = stamp
            try:
                self._keys = configured(self._inline, self._file)
            except StartupError:
                log.exception("API keys stay as they were")
            else:
                log.info("API keys were read again")
                self.warn_of_unknown(bandits, catalogues)

    def _check_host(self, host: bytes) -> None:
        """Refuse names made by somebody else to lead here (DNS rebinding).

        With keys any name will do, unless names are listed: a caller without a key is refused anyway.
        """
        name, loopback = _host_name(host)
        if not loopback and name not in self._hosts:
            raise Forbidden("this host is not listed in SHORTLIST_HOSTS")

    def _check_key(self, scope: Scope, authorization: bytes, *, from_page: bool) -> None:
        needed = scope_of(scope["method"], scope["path"])
        if needed is None:
            return
        if (protocol := protocol_of(scope["path"])) is not None:
            text = authorization
            if not text:
                raise Unauthorized(f"an API key is needed in the header {protocol.key_header.decode()}")
        else:
            kind, _, text = authorization.partition(b" ")
            if kind.lower() != b"bearer" or not text:
                raise Unauthorized("an API key is needed: Authorization: Bearer <key>")
        key = self._keys.find(text.strip())
        if key is None:
            raise Unauthorized("the API key is not known")
        scope[KEY] = key
        if key.rate is not None:
            scope["app"].service.rates.admit(key)
        # After the rate: refused requests count too, or a key could be tried out without end.
        _check_use(scope, key, needed)
        if from_page and not key.is_browser_safe:
            raise Forbidden(
                "from a page, only API keys are accepted that can choose and reward, nothing else"
            )

    def _log_refused(self, origin: bytes) -> None:
        """Once an origin: its page cannot read why it was refused, so the service's owner has to."""
        text = origin.decode("latin-1")
        if ORIGIN.fullmatch(text) and text not in self._refused and len(self._refused) < MOST_LOGGED:
            self._refused.add(text)
            log.warning("a page of %s was refused: SHORTLIST_CORS_ORIGINS does not list it", text)

    def _is_listed(self, origin: bytes) -> bool:
        return bool(self._origins) and origin.decode("latin-1") in self._origins

    def _is_own(self, origin: str, host: str) -> bool:
        try:
            parts = urlsplit(origin)
            return parts.netloc == host and (not self._keys.is_empty or is_loopback(parts.hostname or ""))
        except ValueError:
            return False

    def _stamp_now(self) -> tuple[int, int] | None:
        if self._file is None:
            return None
        try:
            status = self._file.stat()
        except OSError:
            return None
        return status.st_mtime_ns, status.st_size


def protocol_of(path: str) -> OtherProtocol | None:
    """The protocol of a call; None for ours."""
    return PROTOCOLS.get(path[1:].partition("/")[0])


def key_of(request: Request) -> ApiKey | None:
    """The API key or pass of a request; None where keys are not configured."""
    return cast("ApiKey | None", request.scope.get(KEY))


def key_name(request: Request) -> str | None:
    """The name of the API key of a request; None where keys are not configured."""
    key = key_of(request)
    return None if key is None else key.name


def access_of(request: Request) -> Access:
    """The decisions which the caller may reward and activate."""
    key = key_of(request)
    return Access() if key is None else key.access


def check_scope(request: Request, needed: str) -> None:
    """Raise Forbidden unless the request may do what needs this scope: for a call whose body says which."""
    key = key_of(request)
    if key is not None and not key.allows(needed):
        raise _lacks(needed)


def check_catalogue(request: Request, name: str) -> None:
    """Raise NotFound unless the catalogue exists for the key: for a call whose body names one."""
    if not sees_catalogue(key_of(request), name, request.app.service):
        raise NotFound(_NONE_OF["catalogues"])


def check_bandit(request: Request, name: str) -> None:
    """Raise NotFound unless the bandit may exist for the key: for a call whose body names one."""
    key = key_of(request)
    if key is not None and key.bandits is not None and name not in key.bandits:
        raise NotFound(_NONE_OF["bandits"])


def sees_catalogue(key: ApiKey | None, name: str, service: Any) -> bool:
    """Return whether a key is unrestricted, or names the catalogue, the one followed by it, or a bandit of
    it.
    """
    if key is None or key.bandits is None or key.catalogues is None:
        return True
    if name in key.catalogues or service.catalogues.followed_by(name) in key.catalogues:
        return True
    served = map(service.bandits.by_name, key.bandits)
    return any(bandit is not None and bandit.record.catalogue == name for bandit in served)


def sees_all_bandits(key: ApiKey | None, catalogue: str, bandits: Bandits) -> bool:
    """Return whether the key sees all bandits of a catalogue."""
    if key is None or key.bandits is None:
        return True
    users = map(bandits.by_uid, bandits.of_catalogue(catalogue))
    return all(bandit is None or bandit.name in key.bandits for bandit in users)


def _check_use(scope: Scope, key: ApiKey, needed: str) -> None:
    """Raise Forbidden or NotFound unless the key may be used for a call, which needs a scope."""
    method, path = scope["method"], scope["path"]
    if key.visitor is not None and not is_for_passes(method, path):
        raise Forbidden("a pass can choose, reward and activate, nothing else")
    # Calls of another protocol are translated into ours, for which this is checked.
    if key.bandits is not None and protocol_of(path) is None:
        _check_exists(key, path, scope["app"].service)
    # After existence: a caller who may not see a bandit is not told the needed scope.
    if not key.allows(needed) and not (key.allows("read") and may_be_dry_run(method, path)):
        raise _lacks(needed)


def _check_exists(key: ApiKey, path: str, service: Any) -> None:
    """Raise NotFound unless what a path names exists for a restricted key."""
    # Slashes are added so that there are always four parts.
    _, _, kind, name = (path.rstrip("/") + "////").split("/")[:4]
    if path.startswith("/v1/"):
        if kind in _FOR_ALL or (kind in _NONE_OF and not name):
            return
        if kind == "bandits" and key.bandits is not None and name in key.bandits:
            return
        if kind == "catalogues" and sees_catalogue(key, name, service):
            return
    raise NotFound(_NONE_OF.get(kind, "this does not exist for an API key of some bandits or catalogues"))


def _lacks(scope: str) -> Forbidden:
    return Forbidden(f"the API key lacks the scope {scope}")


def _only(name: bytes, before: bytes | None, value: bytes) -> bytes:
    """The value of a deciding header. Raises BadRequest if the header was given before."""
    if before is not None:
        raise BadRequest(f"the header {name.decode()} must not be given twice")
    return value


@lru_cache(maxsize=64)
def _host_name(host: bytes) -> tuple[str, bool]:
    """The name in a Host header without its port, and whether it is of loopback: "[::1]:8080" -> "::1", True.

    Remembered, since nearly all requests name one of few hosts: reading it takes as long as all other checks.
    """
    try:
        name = urlsplit(f"//{host.decode('latin-1')}").hostname or ""
    except ValueError:
        name = ""
    return name, is_loopback(name)
