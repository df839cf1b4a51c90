"""Where requests and answers end, over real sockets: upgrades, early answers, who leaves."""

from __future__ import annotations

import http.client
import json
import signal
import socket
import struct
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import NamedTuple, Self

import pytest

from service_process import Service, serving

pytestmark = pytest.mark.rest

FIRST = b"GET /healthz HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n"
CHOICE = b'{"k": 2}'
LARGE = 5_000_000


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    with serving(tmp_path_factory.mktemp("service")) as service:
        call(service, "PUT", "/v1/catalogues/c", {"dim": 2})
        arms = [{"id": name, "features": [1.0, 0.5]} for name in "abc"]
        call(service, "PUT", "/v1/catalogues/c/arms", {"arms": arms})
        call(service, "PUT", "/v1/bandits/b", {"catalogue": "c", "policy": "linear_ts"})
        yield service


def call(service: Service, method: str, path: str, body: object = None) -> bytes:
    with closing(http.client.HTTPConnection("127.0.0.1", service.port, timeout=60)) as connection:
        connection.request(method, path, None if body is None else json.dumps(body))
        answer = connection.getresponse()
        assert answer.status < 300, answer.read()
        return answer.read()


def arms_of(service: Service) -> set[str]:
    page = json.loads(call(service, "GET", "/v1/catalogues/c/arms"))
    return {arm["id"] for arm in page["items"]}


class Answer(NamedTuple):
    status: int
    headers: http.client.HTTPMessage
    body: bytes


class Wire:
    """A connection on which a test says byte by byte what is sent, and in which segments."""

    def __init__(self, service: Service) -> None:
        self.socket = socket.create_connection(("127.0.0.1", service.port), timeout=60)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.file = self.socket.makefile("rb")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.file.close()
        self.socket.close()

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def send_alone(self, data: bytes) -> None:
        """Send in a segment that is read before anything else is sent: a request before it is answered."""
        self.send(FIRST + data)
        assert self.answer().status == 200

    def head(self) -> tuple[int, http.client.HTTPMessage]:
        return int(self.file.readline().split()[1]), http.client.parse_headers(self.file)

    def answer(self) -> Answer:
        status, headers = self.head()
        length = headers["content-length"]
        if headers["transfer-encoding"] is not None:
            pieces = []
            while size := int(self.file.readline(), 16):
                pieces.append(self.file.read(size))
                self.file.readline()
            self.file.readline()
            return Answer(status, headers, b"".join(pieces))
        return Answer(status, headers, self.file.read(-1 if length is None else int(length)))

    def reset(self) -> None:
        """Leave without a word, as who is killed."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))

    def rest(self) -> bytes:
        return self.file.read()


def head(
    path: str, *fields: str, method: str = "POST", length: int | None = len(CHOICE), version: str = "1.1"
) -> bytes:
    size = () if length is None else (f"content-length: {length}",)
    lines = [f"{method} {path} HTTP/{version}", "host: 127.0.0.1", *fields, *size, "", ""]
    return "\r\n".join(lines).encode()


# Upgrades -------------------------------------------------------------------------------------------
OFFERS = [
    ("connection: Upgrade, HTTP2-Settings", "upgrade: h2c", "http2-settings: AAMAAABkAAQAAP__"),
    ("upgrade: websocket", "connection: keep-alive, Upgrade", "sec-websocket-version: 13"),
    ("Connection: keep-alive", "Upgrade: a", "CONNECTION: UPGRADE", "upgrade: b"),
]


@pytest.mark.parametrize("offer", OFFERS)
def test_no_body_of_a_request_that_offers_an_upgrade_is_run(service: Service, offer: tuple[str, ...]) -> None:
    body = head("/v1/catalogues/c/arms/a", method="DELETE", length=None)
    with Wire(service) as wire:
        wire.send(head("/v1/bandits/b/choose", *offer, length=len(body)))
        answer = wire.answer()
        assert (answer.status, answer.headers["connection"]) == (400, "close")
        assert "Upgrade" in json.loads(answer.body)["detail"]
        with suppress(ConnectionError):
            wire.send(body)
            assert wire.rest() == b""
    assert "a" in arms_of(service)


@pytest.mark.parametrize("cut", [0, 1])
def test_fields_after_a_body_are_none_of_its_head(service: Service, cut: int) -> None:
    """In one segment, in which all is read before the request begins, and in two."""
    trailer = b"content-encoding: gzip\r\nhost: elsewhere\r\nx-request-id: trailer\r\n"
    first = head("/v1/bandits/b/choose", "transfer-encoding: chunked", length=None)
    rest = b"%x\r\n%b\r\n0\r\n%b\r\n" % (len(CHOICE), CHOICE, trailer)
    with Wire(service) as wire:
        wire.send(first + rest[: -cut or None])
        wire.send(rest[len(rest) - cut :] + FIRST)
        answer = wire.answer()
        assert (answer.status, len(json.loads(answer.body)["arms"])) == (200, 2)
        assert answer.headers["x-request-id"] != "trailer"
        assert wire.answer().status == 200


@pytest.mark.parametrize("target", ["/", "127.0.0.1:80", "/v1/catalogues/c/arms/a"])
def test_nothing_that_follows_connect_is_run(service: Service, target: str) -> None:
    with Wire(service) as wire:
        wire.send(head(target, method="CONNECT", length=None))
        answer = wire.answer()
        assert (answer.status, answer.headers["connection"]) == (400, "close")
        with suppress(ConnectionError):
            wire.send(head("/v1/catalogues/c/arms/a", method="DELETE", length=None))
            assert wire.rest() == b""
    assert "a" in arms_of(service)


# Answers before the body has arrived ------------------------------------------------------------------
EarlyAnswer = tuple[str, str, tuple[str, ...], int]  # method, path, fields of the head, status
EARLY: list[EarlyAnswer] = [
    ("PUT", "/v1/catalogues/c/arms", (), 413),
    ("POST", "/nowhere", (), 404),
    ("POST", "/v1/status", (), 405),
    ("PUT", "/v1/catalogues/c/arms?x=1", (), 422),
    ("PUT", "/v1/catalogues/c/arms", ("origin: http://evil.example",), 403),
    ("POST", "/v1/catalogues/nowhere/import", (), 404),
    ("POST", "/v1/catalogues/c/import", (), 413),  # a line that is too long
]


@pytest.mark.parametrize("case", EARLY)
@pytest.mark.parametrize("version", ["1.0", "1.1"])
def test_who_still_sends_sees_the_answer(service: Service, case: EarlyAnswer, version: str) -> None:
    """As http.client does, which reads nothing before it has sent all."""
    method, path, fields, status = case
    with Wire(service) as wire:
        wire.send(head(path, "connection: close", *fields, method=method, length=LARGE, version=version))
        wire.send(b"[" * LARGE)
        answer = wire.answer()
        assert (answer.status, json.loads(answer.body)["status"]) == (status, status)
        assert answer.headers["connection"] == "close"
        assert wire.rest() == b""


def test_an_early_answer_says_that_the_connection_closes(service: Service) -> None:
    """Also to who would keep it; and nothing runs that comes after the answer, in the body or behind it."""
    delete = head("/v1/catalogues/c/arms/a", method="DELETE", length=None)
    with Wire(service) as wire:
        wire.send(head("/v1/catalogues/c/arms", method="PUT", length=LARGE))
        answer = wire.answer()
        assert (answer.status, answer.headers["connection"]) == (413, "close")
        wire.send(b"[" * (LARGE - 1))
        wire.send(b"]" + delete)
        assert wire.rest() == b""
    assert "a" in arms_of(service)


@pytest.mark.parametrize(("path", "status"), [("/v1/catalogues/c/arms", 413), ("/nowhere", 404)])
def test_who_waits_for_continue_hears_the_answer_instead(service: Service, path: str, status: int) -> None:
    with Wire(service) as wire:
        wire.send(head(path, "expect: 100-continue", method="PUT", length=LARGE))
        answer = wire.answer()
        assert (answer.status, answer.headers["connection"]) == (status, "close")
        assert wire.rest() == b""


# Clients that leave -----------------------------------------------------------------------------------
def test_clients_that_leave_are_no_errors(tmp_path: Path) -> None:
    choice = head("/v1/bandits/b/choose") + CHOICE
    kinds = [choice, FIRST, head("/v1/status", method="GET", length=None), choice + FIRST]
    with serving(tmp_path) as service:
        for turn in range(30):
            with Wire(service) as wire:
                wire.send(kinds[turn % len(kinds)] * 50)
                if turn % 3:
                    wire.answer()
                wire.reset()
        for version in ("1.0", "1.1"):  # while an answer is sent that has no length
            call(service, "PUT", "/v1/catalogues/c", {"dim": 2})
            with Wire(service) as wire:
                accept = "accept: application/x-ndjson"
                wire.send(head("/v1/catalogues/c/import", accept, length=LARGE, version=version))
                assert wire.head()[0] == 200
                wire.reset()
        service.send(signal.SIGTERM)
        assert service.wait() == 0
        assert [record for record in service.records() if record["level"] == "ERROR"] == []
