"""A service, as the commands that read and write files speak to it: over HTTP, with the standard library.

Every request here is safe to repeat, so it is, when the connection breaks or the service asks for patience.
"""

from __future__ import annotations

import http.client
import json
import random
import ssl
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.metadata import version
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

from app.errors import ShortlistError

JSON = "application/json"
TIMEOUT_S = 120.0
ATTEMPTS = 6
FIRST_PAUSE_S = 0.2
LONGEST_PAUSE_S = 60.0
CHUNK = 1 << 16
SHOWN_CHARS = 300


class ServiceError(ShortlistError):
    """The service does not answer, or refuses: one line that says which service, and why."""

    def __init__(self, url: str, reason: str, *, status: int | None = None) -> None:
        super().__init__(f"{url}: {reason}")
        self.status_of_answer = status


class Service:
    """One service at ``url``; ``key`` is an API key, None where it asks for none."""

    def __init__(self, url: str, key: str | None) -> None:
        parts = _parts(url)
        self.url = url.rstrip("/")
        self._path = parts.path.rstrip("/")
        self._headers = {"user-agent": f"shortlist/{version('shortlist')}"}
        if key is not None:
            if not key.isascii() or not key.isprintable() or not key:
                raise ServiceError(self.url, "the API key is none: it has characters that no key has")
            self._headers["authorization"] = f"Bearer {key}"
        kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
        self._connection = kind(parts.hostname or "", parts.port, timeout=TIMEOUT_S)

    def close(self) -> None:
        self._connection.close()

    def check(self) -> None:
        """Raise ServiceError unless this is a Shortlist service of our version."""
        found, ours = self.get(""), version("shortlist")
        if not isinstance(found, dict) or found.get("name") != "shortlist":
            raise ServiceError(self.url, "is not a Shortlist service")
        theirs = str(found.get("version", ""))[:40]
        if theirs.split(".")[:2] != ours.split(".")[:2]:
            raise ServiceError(self.url, f"is of version {theirs}, and this command of version {ours}")

    def get(self, *path: str, query: Mapping[str, Any] | None = None) -> Any:
        """The answer to GET, from JSON."""
        return self.send("GET", *path, query=query)

    def send(
        self,
        method: str,
        *path: str,
        query: Mapping[str, Any] | None = None,
        body: bytes | None = None,
        content_type: str = JSON,
    ) -> Any:
        """The answer, from JSON; sent again where that may help. Raises ServiceError."""
        headers = {} if body is None else {"content-type": content_type}
        for attempt in range(ATTEMPTS):
            with self._answer(method, self._target(path, query), body, headers) as answer:
                try:
                    data = answer.read()
                    break
                except (OSError, http.client.HTTPException):
                    self._connection.close()
            time.sleep(_pause(attempt, None))
        else:
            raise ServiceError(self.url, "the connection breaks within every answer")
        try:
            return json.loads(data) if data else None
        except ValueError:
            raise ServiceError(self.url, "is not a Shortlist service: it answers no JSON") from None

    @contextmanager
    def stream(self, *path: str, query: Mapping[str, Any] | None = None) -> Iterator[Iterator[bytes]]:
        """The pieces of a long answer. Raises ServiceError, also when it breaks off."""
        with self._answer("GET", self._target(path, query), None, {}) as answer:
            yield self._pieces(answer)

    def _pieces(self, answer: http.client.HTTPResponse) -> Iterator[bytes]:
        try:
            while piece := answer.read1(CHUNK):
                yield piece
            if answer.length:
                raise ServiceError(self.url, "the answer broke off")
        except (OSError, http.client.HTTPException):
            raise ServiceError(self.url, "the answer broke off") from None

    def _target(self, path: tuple[str, ...], query: Mapping[str, Any] | None) -> str:
        target = f"{self._path}/{'/'.join(quote(part, safe='') for part in path)}"
        given = {name: value for name, value in (query or {}).items() if value is not None}
        return f"{target}?{urlencode(given)}" if given else target

    @contextmanager
    def _answer(
        self, method: str, target: str, body: bytes | None, headers: Mapping[str, str]
    ) -> Iterator[http.client.HTTPResponse]:
        """A successful answer, with its body still to be read."""
        for attempt in range(ATTEMPTS):
            last = attempt == ATTEMPTS - 1
            try:
                self._connection.request(method, target, body, {**self._headers, **headers})
                answer = self._connection.getresponse()
            except (OSError, http.client.HTTPException, ValueError) as error:
                self._connection.close()
                if last or isinstance(error, ssl.SSLError | ValueError | ConnectionRefusedError):
                    raise ServiceError(self.url, f"nothing answers ({_reason(error)})") from None
                time.sleep(_pause(attempt, None))
                continue
            if answer.status == http.client.SERVICE_UNAVAILABLE and not last:
                answer.read()
                time.sleep(_pause(attempt, answer.headers.get("retry-after")))
                continue
            break
        if not 200 <= answer.status < 300:
            raise self._refusal(method, target, answer)
        try:
            yield answer
        finally:
            if not answer.isclosed():  # the rest of it is not wanted
                self._connection.close()

    def _refusal(self, method: str, target: str, answer: http.client.HTTPResponse) -> ServiceError:
        try:
            problem = json.loads(answer.read())
            detail = str(problem["detail"])
            errors = problem.get("errors") or []
            if errors and errors[0].get("message") != detail:
                detail = f"{detail}: {errors[0]['message']}"
        except (OSError, http.client.HTTPException, ValueError, LookupError, TypeError, AttributeError):
            detail = answer.reason or "no reason given"
        where = f"{method} {target.partition('?')[0]}"
        told = " ".join(detail.split())[:SHOWN_CHARS]
        return ServiceError(self.url, f"{where}: {answer.status}, {told}", status=answer.status)


def _parts(url: str) -> Any:
    try:
        parts = urlsplit(url)
        usable = parts.scheme in {"http", "https"} and parts.hostname and parts.port != 0
    except ValueError:
        usable = False
    if (
        not usable
        or parts.query
        or parts.fragment
        or not url.isascii()
        or not url.isprintable()
        or " " in url
    ):
        raise ServiceError(
            url[:SHOWN_CHARS].strip() or "--url", "is not the URL of a service, http://host:port"
        )
    if parts.username or parts.password:
        raise ServiceError("--url", "must not hold a user; an API key is given with --key")
    return parts


def _reason(error: Exception) -> str:
    return (getattr(error, "strerror", None) or str(error) or type(error).__name__)[:SHOWN_CHARS]


def _pause(attempt: int, wanted: str | None) -> float:
    """As long as the service wants, else longer each time; with jitter, so that clients part."""
    base = FIRST_PAUSE_S * 2**attempt
    if wanted is not None and wanted.isdecimal():
        base = max(base, float(wanted))
    longer: float = min(base, LONGEST_PAUSE_S) * random.uniform(1.0, 1.25)  # noqa: S311 - no secret
    return longer
