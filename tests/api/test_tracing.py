"""Traces leave by OTLP, continue the caller's, and are named by routes; otherwise nothing leaves."""

import builtins
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from api_client import running
from app.platform import logs
from app.platform.errors import StartupError

pytestmark = [pytest.mark.anyio, pytest.mark.rest]

TRACE = "0af7651916cd43dd8448eb211c80319c"
CANARY = "canary-7f3a"


class Collector(ThreadingHTTPServer):
    """An OTLP collector that keeps what it is sent."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Receiver)
        self.bodies: list[tuple[str, bytes]] = []


class Receiver(BaseHTTPRequestHandler):
    server: Collector

    def do_POST(self) -> None:
        self.server.bodies.append((self.path, self.rfile.read(int(self.headers["content-length"]))))
        self.send_response(200)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture
def collector(monkeypatch: pytest.MonkeyPatch) -> Iterator[Collector]:
    with Collector() as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{server.server_port}")
        yield server
        server.shutdown()
        thread.join()


async def test_a_request_is_a_span_of_the_callers_trace(collector: Collector, store_url: str, tmp_path: Path):
    async with running(store_url, tmp_path, tracing=True) as api:
        headers = {"traceparent": f"00-{TRACE}-b7ad6b7169203331-01"}
        await api.ok("PUT", "/v1/catalogues/c", {"dim": 2}, 201, headers=headers)
        await api.refused("PUT", "/v1/catalogues/c/arms", {"arms": CANARY})
    (path, body), *more = collector.bodies
    assert path == "/v1/traces"
    assert not more
    (resource,) = ExportTraceServiceRequest.FromString(body).resource_spans
    names = {item.key: item.value.string_value for item in resource.resource.attributes}
    assert names["service.name"] == "shortlist"
    spans = [span for scope in resource.scope_spans for span in scope.spans]
    assert [span.name for span in spans] == [
        "PUT /v1/catalogues/{catalogue}",
        "PUT /v1/catalogues/{catalogue}/arms",
    ]
    assert spans[0].trace_id.hex() == TRACE
    assert CANARY.encode() not in body


async def test_without_the_setting_nothing_leaves(collector: Collector, store_url: str, tmp_path: Path):
    async with running(store_url, tmp_path) as api:
        await api.ok("GET", "/healthz")
    assert not collector.bodies


async def test_tracing_without_the_extra_says_what_to_install(monkeypatch: pytest.MonkeyPatch):
    real = builtins.__import__

    def without(name: str, *arguments: object, **options: object) -> object:
        if name.startswith("opentelemetry.sdk"):
            raise ImportError(name)
        return real(name, *arguments, **options)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(StartupError, match=r"\.\[otel\]"):
        logs.provider(enabled=True)
