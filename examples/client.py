"""A small client of the service: the standard library only."""

from __future__ import annotations

import json
import time
from collections import defaultdict
from collections.abc import Mapping
from http.client import BadStatusLine, HTTPConnection
from typing import Any

TIMEOUT_S = 60.0


class ServiceError(Exception):
    """The service answered with a problem."""


class Client:
    """One kept-alive connection, for one thread at a time. ``seconds`` are the durations by kind of call."""

    def __init__(self, host: str, port: int) -> None:
        self._connection = HTTPConnection(host, port, timeout=TIMEOUT_S)
        self.seconds: dict[str, list[float]] = defaultdict(list)

    def call(self, method: str, path: str, body: Mapping[str, Any] | None = None, kind: str = "other") -> Any:
        """The decoded answer. Raises ServiceError when it is a problem."""
        content = None if body is None else json.dumps(body).encode()
        started = time.perf_counter()
        status, answer = self._exchange(method, path, content)
        self.seconds[kind].append(time.perf_counter() - started)
        if status >= 400:
            raise ServiceError(f"{method} {path}: {status} {answer.decode()}")
        return json.loads(answer) if answer else None

    def close(self) -> None:
        self._connection.close()

    def _exchange(self, method: str, path: str, content: bytes | None) -> tuple[int, bytes]:
        try:
            return self._once(method, path, content)
        except (BadStatusLine, ConnectionResetError, BrokenPipeError):
            self._connection.close()  # it was idle and the service let it go; all calls are safe to repeat
            return self._once(method, path, content)

    def _once(self, method: str, path: str, content: bytes | None) -> tuple[int, bytes]:
        self._connection.request(method, path, content)
        response = self._connection.getresponse()
        return response.status, response.read()
