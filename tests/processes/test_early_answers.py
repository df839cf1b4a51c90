"""A body that is refused before all of it is sent: every kind of client sees the answer, on real sockets.

Python's ``http.client`` and others read nothing before all is sent. If the service closed at once, they would
see a reset connection in the place of the answer.
"""

import hashlib
import http.client
import json
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest

from node import node
from service_process import Service, serving

pytestmark = pytest.mark.rest

SIZE = 12_000_000
KEY = "sl_" + "7" * 43
ENTRY = f"a:admin:{hashlib.sha256(KEY.encode()).hexdigest()}"
Answer = tuple[int, str]
Call = Callable[[str, dict[str, str], Path], Answer]

STREAM = """
const [url, file, headers] = process.argv.slice(2);
const options = { method: "PUT", headers: JSON.parse(headers) };
const request = require("node:http").request(url, options, (answer) => {
  let text = "";
  answer.on("data", (part) => (text += part));
  answer.on("end", () => console.log(answer.statusCode, JSON.parse(text).code));
});
request.end(require("node:fs").readFileSync(file));
"""


def http_client_call(url: str, headers: dict[str, str], body: Path) -> Answer:
    """As a stream, in chunks."""
    parts = httpx.URL(url)
    connection = http.client.HTTPConnection(parts.host, parts.port, timeout=60)
    with body.open("rb") as file:
        connection.request("PUT", parts.path, file, headers, encode_chunked=True)
    answer = connection.getresponse()
    found = answer.status, json.load(answer)["code"]
    connection.close()
    return found


def node_call(script: str) -> Call:
    def call(url: str, headers: dict[str, str], body: Path) -> Answer:
        path = body.with_suffix(".cjs")
        path.write_text(script)
        status, code = node(path, url, body, json.dumps(headers)).split()
        return int(status), code

    return call


CLIENTS: dict[str, Call] = {"http.client, chunked": http_client_call, "node http": node_call(STREAM)}
REFUSALS = {
    (413, "too_large"): ("/v1/catalogues/c/arms", {}),
    (401, "unauthorized"): ("/v1/catalogues/c/arms", {"authorization": "Bearer nobody"}),
    (404, "not_found"): ("/v1/nothing", {}),
    (415, "unsupported_encoding"): ("/v1/catalogues/c/arms", {"content-encoding": "gzip"}),
}


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    folder = tmp_path_factory.mktemp("early")
    with serving(folder, SHORTLIST_API_KEYS=ENTRY) as service:
        yield service


@pytest.fixture(scope="module")
def body(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("body") / "arms.json"
    path.write_bytes(b"[" + b"0," * (SIZE // 2) + b"0]")
    return path


TOO_LARGE, *OTHERS = REFUSALS


@pytest.mark.parametrize(
    ("client", "refusal"),
    [*((client, TOO_LARGE) for client in CLIENTS), *(("http.client, chunked", other) for other in OTHERS)],
    ids=str,
)
def test_every_client_sees_why_it_was_refused(
    service: Service, body: Path, client: str, refusal: Answer
) -> None:
    path, more = REFUSALS[refusal]
    headers = {"content-type": "application/json", "authorization": f"Bearer {KEY}", **more}
    for _ in range(3):
        assert CLIENTS[client](service.url + path, headers, body) == refusal
