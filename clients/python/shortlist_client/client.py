"""The two clients: how calls are sent, and nothing else. What they are is in ``endpoints``."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from importlib.metadata import PackageNotFoundError, version
from types import TracebackType
from typing import Any, Self, TypeVar
from urllib.parse import urlsplit

import httpx

from shortlist_client.answers import Page
from shortlist_client.binding import Awaited, Waiting
from shortlist_client.endpoints import Endpoints
from shortlist_client.environment import Proxy, options, proxy_of
from shortlist_client.errors import InvalidArgument
from shortlist_client.exchange import Pause, Retry, Steps, exchanges
from shortlist_client.passes import check_key
from shortlist_client.processes import OfOneProcess
from shortlist_client.routes import Call, Sink

T = TypeVar("T")

try:
    VERSION = version("shortlist-client")
except PackageNotFoundError:  # used from a folder, not installed
    VERSION = "0"

URL = "http://127.0.0.1:8080"
TIMEOUT_S = 30.0
CONNECT_S = 5.0
# The service closes connections that were silent for 75 s.
KEPT_S = 60.0
CONNECTIONS = 100


class _Base(Endpoints, OfOneProcess):
    """Where the service is, and how it is asked."""

    def __init__(self, url: str, key: str | None, retry: Retry, proxy: Proxy | None) -> None:
        Endpoints.__init__(self)
        OfOneProcess.__init__(self)
        if key is not None:
            check_key(key)
        self._url = url.rstrip("/")
        # For errors: who does not answer may be the proxy.
        self._place = self._url if proxy is None else f"{self._url} through {proxy}"
        self._retry = retry
        self._headers = {"user-agent": f"shortlist-client/{VERSION}"}
        if key is not None:
            self._headers["authorization"] = f"Bearer {key}"
        # Of a given client of httpx: it was used here, and by a process of which this one is a child.
        self._is_used = self._is_inherited = False

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._url!r})"

    @property
    def url(self) -> str:
        """Where the service is, without a slash at the end."""
        return self._url

    def _arguments(self, call: Call[Any]) -> dict[str, Any]:
        if self._is_inherited:
            name = type(self).__name__
            raise InvalidArgument(f"http has connections of a parent process: make a {name} in each process")
        self._is_used = True
        headers = {**self._headers, **call.headers}
        if call.content is not None:
            headers["content-type"] = call.route.content_type
        return {"method": call.route.method, "url": self._url + call.path, "headers": headers}


class Client(_Base, Waiting):
    """A client for threads: every method waits for its answer. Threads may share one, and a process that
    is forked opens connections of its own.

    ``url``        where the service is
    ``key``        an API key, where the service asks for one
    ``timeout_s``  how long a connection may be silent before the call fails or is tried again
    ``retry``      how often and when
    ``http``       a client of httpx to send with, for certificates, proxies and the like; it stays open.
                   Once it was used, a child process refuses it: make one in each.
                   Without it proxies and certificates are those of the environment (``http_proxy``,
                   ``https_proxy``, ``all_proxy``, ``no_proxy``, ``SSL_CERT_FILE``, ``SSL_CERT_DIR``)
    """

    def __init__(
        self,
        url: str = URL,
        key: str | None = None,
        *,
        timeout_s: float = TIMEOUT_S,
        retry: Retry | None = None,
        http: httpx.Client | None = None,
    ) -> None:
        _check(url)
        proxy = proxy_of(url) if http is None else None
        super().__init__(url, key, retry or Retry(), proxy)
        self._options = None if http is not None else _options(timeout_s, url, proxy)
        self._http = http or httpx.Client(**self._options or {})

    def perform(self, plan: Call[T] | Steps[T]) -> T:
        """Do what a description says, and wait for its result."""
        steps = exchanges(plan, self._place, self._retry)
        try:
            step = next(steps)
            while True:
                try:
                    done = self._do(step)
                except httpx.RequestError as error:
                    step = steps.throw(error)
                else:
                    step = steps.send(done)
        except StopIteration as end:
            result: T = end.value
            return result

    def iterate(self, page: Callable[[str | None], Call[Page[T]]]) -> Iterator[T]:
        """All items of all pages."""
        cursor = None
        while True:
            found = self.perform(page(cursor))
            yield from found.items
            cursor = found.next
            if cursor is None:
                return

    def close(self) -> None:
        """Close the connections."""
        if self._options is not None:
            self._http.close()

    def begin_anew(self) -> None:
        """Open connections of its own: answers on those of the parent are the parent's."""
        if self._options is None:
            self._is_inherited = self._is_used
        elif not self._http.is_closed:
            self._http = httpx.Client(**self._options)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _do(self, step: Call[Any] | Pause) -> httpx.Response | None:
        if isinstance(step, Pause):
            time.sleep(step.seconds)
            return None
        if step.into is not None:
            return self._download(step, step.into)
        return self._http.request(content=step.content, **self._arguments(step))

    def _download(self, call: Call[Any], into: Sink) -> httpx.Response:
        with self._http.stream(**self._arguments(call)) as response:
            if not response.is_success:
                response.read()
                return response
            for piece in response.iter_bytes():
                into.write(piece)
        return httpx.Response(response.status_code)


class AsyncClient(_Base, Awaited):
    """A client for asyncio: every method is awaited. Arguments as for ``Client``."""

    def __init__(
        self,
        url: str = URL,
        key: str | None = None,
        *,
        timeout_s: float = TIMEOUT_S,
        retry: Retry | None = None,
        http: httpx.AsyncClient | None = None,
    ) -> None:
        _check(url)
        proxy = proxy_of(url) if http is None else None
        super().__init__(url, key, retry or Retry(), proxy)
        self._options = None if http is not None else _options(timeout_s, url, proxy)
        self._http = http or httpx.AsyncClient(**self._options or {})

    async def perform(self, plan: Call[T] | Steps[T]) -> T:
        """Do what a description says, and give its result."""
        steps = exchanges(plan, self._place, self._retry)
        try:
            step = next(steps)
            while True:
                try:
                    done = await self._do(step)
                except httpx.RequestError as error:
                    step = steps.throw(error)
                else:
                    step = steps.send(done)
        except StopIteration as end:
            result: T = end.value
            return result

    async def iterate(self, page: Callable[[str | None], Call[Page[T]]]) -> AsyncIterator[T]:
        """All items of all pages."""
        cursor = None
        while True:
            found = await self.perform(page(cursor))
            for item in found.items:
                yield item
            cursor = found.next
            if cursor is None:
                return

    async def close(self) -> None:
        """Close the connections."""
        if self._options is not None:
            await self._http.aclose()

    def begin_anew(self) -> None:
        """Open connections of its own: answers on those of the parent are the parent's."""
        if self._options is None:
            self._is_inherited = self._is_used
        elif not self._http.is_closed:
            self._left = self._http  # never freed here: that would change what the parent's loop waits for
            self._http = httpx.AsyncClient(**self._options)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def _do(self, step: Call[Any] | Pause) -> httpx.Response | None:
        if isinstance(step, Pause):
            await asyncio.sleep(step.seconds)
            return None
        if step.into is not None:
            return await self._download(step, step.into)
        content = step.content
        sent = content if content is None or isinstance(content, bytes) else _streamed(content)
        return await self._http.request(content=sent, **self._arguments(step))

    async def _download(self, call: Call[Any], into: Sink) -> httpx.Response:
        async with self._http.stream(**self._arguments(call)) as response:
            if not response.is_success:
                await response.aread()
                return response
            async for piece in response.aiter_bytes():
                into.write(piece)
        return httpx.Response(response.status_code)


async def _streamed(pieces: Iterable[bytes]) -> AsyncIterator[bytes]:
    for piece in pieces:
        yield piece


def _check(url: str) -> None:
    """Raise InvalidArgument unless this is the address of a service."""
    try:
        parts = urlsplit(url)
        is_one = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_one = False
    if not is_one or parts.query or parts.fragment or not (url.isascii() and url.isprintable()) or " " in url:
        raise InvalidArgument(f"url must begin with http:// or https:// and name a host, like {URL}")
    if parts.username is not None or parts.password is not None:
        raise InvalidArgument("url must not name a user: an API key is given as key")


def _options(timeout_s: float, url: str, proxy: Proxy | None) -> dict[str, Any]:
    """Arguments of a client of httpx."""
    limits = httpx.Limits(
        max_connections=CONNECTIONS, max_keepalive_connections=CONNECTIONS, keepalive_expiry=KEPT_S
    )
    timeout = httpx.Timeout(timeout_s, connect=min(timeout_s, CONNECT_S))
    return {"timeout": timeout, "limits": limits, **options(url, proxy)}
