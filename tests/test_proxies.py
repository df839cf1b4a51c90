"""The service behind the proxies of deploy/proxy, where the machine has one: TLS apart, as they are there."""

from __future__ import annotations

import re
import shutil
import socket
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from service_process import Service, serving
from shortlist_client import Client
from store_clients import connect_sync, flush_sync
from waiting import wait_until_sync

pytestmark = pytest.mark.rest

FILES = Path(__file__).parents[1] / "deploy/proxy"
ARMS = b"".join(b'{"id": "a%d", "features": [1, %d]}\n' % (n, n % 7) for n in range(3_000))


def nginx(folder: Path, port: int, replicas: Sequence[str]) -> list[str]:
    """The arguments that run it before the first replica."""
    own = (FILES / "nginx.conf").read_text()
    own = re.sub(r"^ +ssl_.*\n", "", own, flags=re.MULTILINE).replace(
        "listen 443 ssl", f"listen 127.0.0.1:{port}"
    )
    own = own.replace("127.0.0.1:8080", replicas[0])
    (folder / "shortlist.conf").write_text(own)
    paths = "".join(
        f"{kind}_temp_path {folder}/{kind};\n"
        for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    (folder / "nginx.conf").write_text(
        f"daemon off;\nmaster_process off;\npid {folder}/pid;\nerror_log {folder}/log;\nevents {{}}\n"
        f"http {{\naccess_log off;\n{paths}include {folder}/shortlist.conf;\n}}\n"
    )
    return ["-p", str(folder), "-c", str(folder / "nginx.conf"), "-e", str(folder / "log")]


def caddy(folder: Path, port: int, replicas: Sequence[str]) -> list[str]:
    """The arguments that run it; its variables say the rest."""
    own = (FILES / "Caddyfile").read_text().replace("{\n", "{\n\tadmin off\n", 1)
    (folder / "Caddyfile").write_text(own)
    return ["run", "--adapter", "caddyfile", "--config", str(folder / "Caddyfile")]


PROXIES = {"nginx": nginx, "caddy": caddy}


def has_proxy(name: str) -> pytest.MarkDecorator:
    return pytest.mark.skipif(shutil.which(name) is None, reason=f"no {name} is installed")


@contextmanager
def proxied(name: str, folder: Path, *services: Service) -> Iterator[httpx.Client]:
    folder.mkdir()
    replicas = [f"127.0.0.1:{service.port}" for service in services]
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    process = subprocess.Popen(
        [str(shutil.which(name)), *PROXIES[name](folder, port, replicas)],
        env={"HOME": str(folder), "SITE": f"http://127.0.0.1:{port}", "REPLICAS": " ".join(replicas)},
        stderr=subprocess.DEVNULL,
    )
    try:
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=60) as client:

            def answers() -> bool:
                assert process.poll() is None, f"{name} ended"
                try:
                    return client.get("/healthz").is_success
                except httpx.ConnectError:
                    return False

            wait_until_sync(answers, what=f"{name} answers")
            yield client
    finally:
        process.terminate()
        process.wait()


@pytest.mark.parametrize("name", [pytest.param(name, marks=has_proxy(name)) for name in PROXIES])
def test_a_proxy_passes_on_what_the_service_answers(name: str, tmp_path: Path):
    with serving(tmp_path / "service") as service, proxied(name, tmp_path / name, service) as client:
        assert client.put("/v1/catalogues/c", json={"dim": 2}).status_code == 201
        lines = iter([ARMS[start : start + 10_000] for start in range(0, len(ARMS), 10_000)])
        assert client.post("/v1/catalogues/c/import", content=lines).json()["added"] == 3_000
        bandit = {"catalogue": "c", "policy": "linear_ts", "log": {}}
        assert client.put("/v1/bandits/b", json=bandit).status_code == 201
        for _ in range(3):
            assert len(client.post("/v1/bandits/b/choose", json={"k": 2}).json()["arms"]) == 2
        export = "/v1/bandits/b/log/export"
        wait_until_sync(lambda: len(client.get(export).text.splitlines()) == 3, what="the log is exported")
        large = client.put("/v1/catalogues/c/arms", content=b"[" * 5_000_000)  # refused before it has arrived
        assert (large.status_code, large.json()["code"]) == (413, "too_large")
        offer = {
            "connection": "Upgrade, HTTP2-Settings",
            "upgrade": "h2c",
            "http2-settings": "AAMAAABkAAQAAP__",
        }
        assert client.post("/v1/bandits/b/choose", json={"k": 2}, headers=offer).is_success
        assert client.get("/metrics").status_code == 404


@pytest.mark.skipif(shutil.which("caddy") is None, reason="no caddy is installed")
def test_no_caller_notices_that_a_replica_ended(tmp_path: Path, store_url: str):
    with connect_sync(store_url) as client:  # an earlier test may have left one of fewer partitions
        flush_sync(client)
    settings = {"SHORTLIST_REDIS_URL": store_url}
    with (
        serving(tmp_path / "one", **settings) as one,
        serving(tmp_path / "two", **settings) as two,
        proxied("caddy", tmp_path / "caddy", one, two) as client,
        Client(str(client.base_url)) as caller,
    ):
        httpx.put(f"{one.url}/v1/catalogues/c", json={"dim": 1}).raise_for_status()
        arms = {"arms": [{"id": "a", "features": [1]}]}
        httpx.put(f"{one.url}/v1/catalogues/c/arms", json=arms).raise_for_status()
        bandit = {"catalogue": "c", "policy": "linear_ts"}
        httpx.put(f"{one.url}/v1/bandits/b", json=bandit).raise_for_status()
        choose = "/v1/bandits/b/choose"
        wait_until_sync(
            lambda: httpx.post(f"{two.url}{choose}", json={}).is_success, what="the other one has it too"
        )
        for number in range(40):
            if number == 20:
                one.kill()
            assert caller.choose("b").arms[0].id == "a", number  # a call that breaks with it is sent again
