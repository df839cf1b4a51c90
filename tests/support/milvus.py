"""Milvus Lite for tests: one for the run, in which each test has collections of its own."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import httpx

from api_client import Api, running
from app.milvus.embedded_engine import EmbeddedEngine
from waiting import wait_until

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


@contextmanager
def embedded_engine(folder: Path) -> Iterator[EmbeddedEngine]:
    with EmbeddedEngine(folder / "arms") as engine:
        yield engine


@asynccontextmanager
async def running_on_milvus(
    store_url: str, data_dir: Path, uri: str, *, kind: type[MilvusApi] = MilvusApi, **options: Any
) -> AsyncIterator[MilvusApi]:
    async with running(store_url, data_dir, milvus_uri=uri, **options) as api:
        yield kind(api.app, api.http, api.store)
