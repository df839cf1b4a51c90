"""Milvus for tests: one for the run, in which each test has collections of its own.

It is Milvus Lite, or with SHORTLIST_TEST_MILVUS=server a standalone server (`make test-milvus`).
"""

from __future__ import annotations

import os
import re
import socket
import urllib.request
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from api_client import Api, running
from app.storage.embedded.server import EmbeddedServer
from shortlist_milvus.embedded_engine import EmbeddedEngine
from waiting import wait_until

ON_SERVER = os.environ.get("SHORTLIST_TEST_MILVUS") == "server"
CATALOGUE = re.compile(r"/v1/catalogues/[^/]+")


class MilvusApi(Api):
    """An ``Api`` whose catalogues are of the kind "milvus" unless a test says otherwise."""

    async def call(self, method: str, path: str, json: Any = None, **options: Any) -> httpx.Response:
        if method == "PUT" and CATALOGUE.fullmatch(path) and isinstance(json, dict):
            json = {"index": {"kind": "milvus"}} | json
        return await super().call(method, path, json, **options)

    async def followed(self, name: str) -> dict[str, Any]:
        """The index of a catalogue once the engine has everything, and nothing is left in the overlay."""

        async def is_followed() -> bool:
            index = (await self.ok("GET", f"/v1/catalogues/{name}"))["index"]
            return bool(index["collection"]) and not index["pending"] and not index["overlay"]

        await wait_until(is_followed, what="the engine has every arm")
        index: dict[str, Any] = (await self.ok("GET", f"/v1/catalogues/{name}"))["index"]
        return index


class OtherKindApi(MilvusApi):
    """For tests of arms in memory: ``sub_ts`` stands for ``linear_ts``, which compares all of them.

    Of a few arms it finds the same.
    """

    async def call(self, method: str, path: str, json: Any = None, **options: Any) -> httpx.Response:
        if method == "PUT" and isinstance(json, dict) and json.get("policy") == "linear_ts":
            json = json | {"policy": "sub_ts"}
        return await super().call(method, path, json, **options)


class StandaloneMilvus(EmbeddedServer):
    """A whole Milvus server in one process, of the wheel `milvus`. When it is killed it is started again.

    ``programs``: a folder that servers share, for to unpack them takes ten seconds.
    """

    WHAT = "the Milvus server of the tests"

    def __init__(self, folder: Path, programs: Path) -> None:
        super().__init__(folder, start_timeout_s=240.0)
        self._programs = programs
        self._health_port = 0
        self.uri = ""

    def prepare(self) -> None:
        """Unpack the programs, and write the settings with ports that are free now."""
        milvus = pytest.importorskip("milvus", reason="the wheel milvus, a Milvus server, is not installed")
        # private: the library has no public way to this folder
        milvus._initialize_data_files(str(self._programs))
        config = milvus.MilvusServerConfig(data_dir=str(self.data_dir))
        config.configs |= {key: _free_port() for key in config.configurable_items if key.endswith("_port")}
        config.resolve()
        self.uri = f"http://127.0.0.1:{config.get('proxy_port')}"
        self._health_port = _free_port()
        # Without a file its etcd listens on 2380, so that there could be one server of a machine.
        client, peer = (f"http://127.0.0.1:{port}" for port in (config.get("etcd_port"), _free_port()))
        (self.data_dir / "configs" / "etcd.yaml").write_text(
            f"listen-client-urls: {client}\nadvertise-client-urls: {client}\n"
            f"listen-peer-urls: {peer}\ninitial-advertise-peer-urls: {peer}\n"
            f"initial-cluster: default={peer}\n"
        )

    def answers(self) -> bool:
        try:
            with urllib.request.urlopen(
                f"http://127.0.0.1:{self._health_port}/healthz", timeout=5.0
            ) as answer:
                return b"OK" in answer.read()
        except OSError:
            return False

    def command(self) -> list[str]:
        """From its folder, where its logs go."""
        program = str(self._programs / "bin" / "milvus")
        return ["/usr/bin/env", f"--chdir={self.data_dir}", program, "run", "standalone"]

    def environment(self) -> dict[str, str]:
        return {
            **os.environ,
            "DEPLOY_MODE": "STANDALONE",
            "ETCD_CONFIG_PATH": str(self.data_dir / "configs" / "etcd.yaml"),
            "METRICS_PORT": str(self._health_port),
            "MILVUSCONF": str(self.data_dir / "configs"),
            "LD_LIBRARY_PATH": str(self._programs / "bin"),
        }


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        return int(free.getsockname()[1])


def engine_of(folder: Path) -> EmbeddedEngine | StandaloneMilvus:
    """The engine that the tests use, for a ``with``."""
    return (
        StandaloneMilvus(folder / "server", folder / "programs")
        if ON_SERVER
        else EmbeddedEngine(folder / "arms")
    )


@asynccontextmanager
async def running_on_milvus(
    store_url: str, data_dir: Path, uri: str, *, kind: type[MilvusApi] = MilvusApi, **options: Any
) -> AsyncIterator[MilvusApi]:
    async with running(store_url, data_dir, milvus_uri=uri, **options) as api:
        yield kind(api.app, api.http, api.store)
