"""Where requests and answers end, over real sockets: upgrades, HTTP/1.0, early answers, who leaves."""

from __future__ import annotations

import http.client
import json
import signal
import socket
import struct
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import NamedTuple, Self

import pytest

from app.api import limits
from service_process import Service, serving
from waiting import wait_until_sync

pytestmark = pytest.mark.rest

KEY = "sl_" + "k" * 43
DIGEST = "0" * 64  # of another key
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
    ("connection: upgrade", "upgrade: TLS/1.0, h2c"),
    ("Connection: keep-alive", "Upgrade: a", "CONNECTION: UPGRADE", "upgrade: b"),
]


@pytest.mark.parametrize("offer", OFFERS)
@pytest.mark.parametrize("cut", [0, 3, len(CHOICE)])
def test_the_body_of_a_request_that_offers_an_upgrade_is_read(
    service: Service, offer: tuple[str, ...], cut: int
) -> None:
    with Wire(service) as wire:
        for _ in range(2):  # the connection goes on
            wire.send_alone(head("/v1/bandits/b/choose", *offer) + CHOICE[:cut])
            wire.send(CHOICE[cut:] + FIRST)
            answer = wire.answer()
            assert (answer.status, len(json.loads(answer.body)["arms"])) == (200, 2)
            assert wire.answer().status == 200


@pytest.mark.parametrize("offer", OFFERS)
def test_so_is_a_body_in_chunks(service: Service, offer: tuple[str, ...]) -> None:
    fields = (*offer, "transfer-encoding: chunked")
    with Wire(service) as wire:
        wire.send_alone(head("/v1/bandits/b/choose", *fields, length=None) + b"3\r\n" + CHOICE[:3])
        wire.send(b"\r\n%x\r\n%b\r\n0\r\n\r\n" % (len(CHOICE) - 3, CHOICE[3:]) + FIRST)
        assert len(json.loads(wire.answer().body)["arms"]) == 2
        assert wire.answer().status == 200


@pytest.mark.parametrize(("version", "more"), [("1.1", ", close"), ("1.0", "")])
def test_and_one_after_which_the_connection_closes(service: Service, version: str, more: str) -> None:
    offer = ("upgrade: h2c", f"connection: upgrade{more}")
    with Wire(service) as wire:
        wire.send_alone(head("/v1/bandits/b/choose", *offer, version=version))
        wire.send(CHOICE + FIRST)  # what follows is not answered
        assert len(json.loads(wire.answer().body)["arms"]) == 2
        assert wire.rest() == b""


@pytest.mark.parametrize("offer", OFFERS)
def test_no_body_runs_as_a_request(service: Service, offer: tuple[str, ...]) -> None:
    body = head("/v1/catalogues/c/arms/a", method="DELETE", length=None)
    with Wire(service) as wire:
        wire.send_alone(head("/v1/bandits/b/choose", *offer, length=len(body)))
        wire.send(body)
        answer = wire.answer()
        assert (answer.status, json.loads(answer.body)["errors"][0]["loc"]) == (422, ["body"])
        wire.send(FIRST)
        assert json.loads(wire.answer().body) == {"status": "ok"}
    assert "a" in arms_of(service)


@pytest.mark.parametrize("offer", [(), *OFFERS])
@pytest.mark.parametrize("cut", [0, 1])
def test_fields_after_a_body_are_none_of_its_head(service: Service, offer: tuple[str, ...], cut: int) -> None:
    """In one segment, in which all is read before the request begins, and in two."""
    trailer = b"content-encoding: gzip\r\nhost: elsewhere\r\nx-request-id: trailer\r\n"
    first = head("/v1/bandits/b/choose", "transfer-encoding: chunked", *offer, length=None)
    rest = b"%x\r\n%b\r\n0\r\n%b\r\n" % (len(CHOICE), CHOICE, trailer)
    with Wire(service) as wire:
        wire.send(first + rest[: -cut or None])
        wire.send(rest[len(rest) - cut :] + FIRST)
        answer = wire.answer()
        assert (answer.status, len(json.loads(answer.body)["arms"])) == (200, 2)
        assert answer.headers["x-request-id"] != "trailer"
        assert wire.answer().status == 200


def test_an_import_that_offers_an_upgrade_stores_its_lines(service: Service) -> None:
    lines = b'{"id": "c", "features": [1, 2]}\n' * 3
    with Wire(service) as wire:
        wire.send_alone(head("/v1/catalogues/c/import", *OFFERS[0], length=len(lines)))
        wire.send(lines)
        assert json.loads(wire.answer().body)["updated"] == 3


@pytest.mark.parametrize("target", ["/", "127.0.0.1:80", "/v1/catalogues/c/arms/a"])
def test_nothing_that_follows_connect_is_run(service: Service, target: str) -> None:
    with Wire(service) as wire:
        wire.send(head(target, method="CONNECT", length=None))
        answer = wire.answer()
        assert (answer.status, answer.headers["connection"]) == (400, "close")
        wire.send(head("/v1/catalogues/c/arms/a", method="DELETE", length=None))
        assert wire.rest() == b""
    assert "a" in arms_of(service)


# HTTP/1.0 -------------------------------------------------------------------------------------------
def test_http_1_0_gets_no_chunks(service: Service) -> None:
    """Not of a streamed answer either: it ends where the connection does."""
    path = "/v1/bandits/streamed/log/export"
    call(service, "PUT", "/v1/bandits/streamed", {"catalogue": "c", "policy": "linear_ts", "log": {}})
    call(service, "POST", "/v1/bandits/streamed/choose", {"k": 1})
    whole = wait_until_sync(lambda: call(service, "GET", path), what="the decision is in the log")
    with Wire(service) as wire:
        wire.send(head(path, "connection: keep-alive", method="GET", length=None, version="1.0"))
        answer = wire.answer()
    assert {"transfer-encoding", "content-length"}.isdisjoint(map(str.lower, answer.headers))
    assert (answer.headers["connection"], answer.body) == ("close", whole)


def test_http_1_0_does_not_hear_continue(service: Service) -> None:
    with Wire(service) as wire:
        wire.send(head("/v1/bandits/b/choose", "expect: 100-continue", version="1.0") + CHOICE)
        assert wire.rest().startswith(b"HTTP/1.1 200 OK\r\n")


# HEAD -----------------------------------------------------------------------------------------------
@pytest.mark.parametrize("path", ["/healthz", "/v1/status", "/v1/catalogues/c", "/v1/bandits/b/log/export"])
def test_an_answer_to_head_has_no_body(service: Service, path: str) -> None:
    with Wire(service) as wire:
        wire.send(head(path, method="HEAD", length=None))
        status, headers = wire.head()
        wire.send(FIRST)
        assert (status, json.loads(wire.answer().body)) == (200, {"status": "ok"})
    if "log" not in path:
        assert headers["content-length"] is not None


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


def test_a_missing_key_is_told_to_who_still_sends(tmp_path: Path) -> None:
    with serving(tmp_path, SHORTLIST_API_KEYS=f"a:admin:{DIGEST}") as service, Wire(service) as wire:
        fields = ("connection: close", f"authorization: Bearer {KEY}")
        wire.send(head("/v1/catalogues/c/arms", *fields, method="PUT", length=LARGE))
        wire.send(b"[" * LARGE)
        answer = wire.answer()
        assert (answer.status, answer.headers["www-authenticate"]) == (401, "Bearer")


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


def test_no_more_is_dropped_than_the_limit(service: Service) -> None:
    with Wire(service) as wire:
        wire.send(head("/nowhere", length=10 * limits.MAX_DROPPED_BYTES))
        with pytest.raises(ConnectionError):
            wire.send(b"[" * (4 * limits.MAX_DROPPED_BYTES))


def test_what_is_no_http_does_not_break_into_an_answer(service: Service) -> None:
    """Behind a request that is still being answered: this is answered whole, and is the last."""
    with Wire(service) as wire:
        wire.send(head("/v1/bandits/b/choose") + CHOICE + b"no HTTP\r\n\r\n")
        assert len(json.loads(wire.answer().body)["arms"]) == 2
        assert wire.rest() == b""


def test_urllib_sees_why_a_large_body_is_refused(service: Service) -> None:
    """Which closes each connection, and reads nothing before it has sent all."""
    url = f"http://127.0.0.1:{service.port}/v1/catalogues/c/arms"
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(urllib.request.Request(url, b"[" * LARGE, method="PUT"))
    with refused.value as answer:
        assert json.loads(answer.read())["code"] == "too_large"


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
