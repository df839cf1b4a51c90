"""`shortlist doctor`: checks an installation, running or stopped, and says what is wrong.

A running service is asked over HTTP, a store of one's own directly; nothing is changed or started.
"""

from __future__ import annotations

import asyncio
import http.client
import json
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, requires, version

import numpy as np

from app.errors import ShortlistError, StartupError
from app.indexes.live import IndexOptions, LiveIndex
from app.services.health.expected_store import ExpectedStore
from app.settings import Settings
from app.storage.losses import Losses
from app.storage.redis_store import RedisStore
from app.storage.server_binary import find_binary

LOW_DISK_BYTES = 1 << 30
TIMEOUT_S = 3.0


@dataclass(frozen=True, slots=True)
class Finding:
    """One check: ``good`` None means that it does not apply now."""

    name: str
    good: bool | None
    text: str


def examine(settings: Settings) -> int:
    """Print every finding; 0 when nothing is wrong."""
    failed = 0
    for check in (_python, _packages, _binary, _graph, _folder, _disk, _store, _service):
        for finding in _guarded(check, settings):
            mark = {True: "ok  ", False: "FAIL", None: "-   "}[finding.good]
            print(f"{mark} {finding.name:10} {finding.text}")
            failed += finding.good is False
    print("nothing is wrong" if not failed else f"{failed} thing{'s' * (failed > 1)} to mend")
    return 1 if failed else 0


Check = Callable[[Settings], Iterator[Finding]]


def _guarded(check: Check, settings: Settings) -> Iterator[Finding]:
    name = check.__name__.strip("_")
    try:
        yield from check(settings)
    except ShortlistError as error:
        yield Finding(name, False, error.detail)
    except Exception as error:
        yield Finding(name, False, f"the check broke: {type(error).__name__}: {error}")


def _python(settings: Settings) -> Iterator[Finding]:  # noqa: ARG001
    found = ".".join(map(str, sys.version_info[:3]))
    yield Finding("python", sys.version_info >= (3, 11), f"{found}, 3.11 or newer is needed")


def _packages(settings: Settings) -> Iterator[Finding]:  # noqa: ARG001
    missing = []
    for requirement in requires("shortlist-service") or []:
        name = requirement.split(";")[0].split("<")[0].split(">")[0].split("=")[0].strip()
        if "extra ==" in requirement or "sys_platform" in requirement:
            continue
        try:
            version(name)
        except PackageNotFoundError:
            missing.append(name)
    yield Finding("packages", not missing, "missing: " + ", ".join(missing) if missing else "all there")


def _binary(settings: Settings) -> Iterator[Finding]:
    if settings.redis_url is not None:
        yield Finding("binary", None, "not needed: --redis-url is given")
        return
    yield Finding("binary", True, f"the embedded store would run {find_binary().name}")


def _graph(settings: Settings) -> Iterator[Finding]:  # noqa: ARG001
    arms = np.random.default_rng(0).standard_normal((1_000, 16))
    index = LiveIndex(16, IndexOptions(kind="hnsw"))
    index.upsert([str(row) for row in range(len(arms))], arms, range(len(arms)))
    job = index.begin_maintenance()
    if job is not None:
        job.run()
        index.finish_maintenance(job)
    status = index.status()
    yield Finding(
        "hnswlib", status.kind == "hnsw", f"recall {status.recall_at_1:.2f} on a graph of 1,000 arms"
    )


def _folder(settings: Settings) -> Iterator[Finding]:
    folder = settings.data_dir
    if not folder.exists():
        yield Finding("data", None, f"{folder} does not exist yet")
        return
    writable = folder.is_dir() and os.access(folder, os.W_OK | os.X_OK)
    yield Finding("data", writable, f"{folder} is {'' if writable else 'not '}a folder that can be written")
    private = not folder.stat().st_mode & 0o077
    yield Finding("data", private, f"{folder} is {'' if private else 'not '}closed to other users")
    losses = Losses(folder)
    loss = losses.known()
    if loss:
        yield Finding("loss", False, f"{loss.at}: {loss.what}. When that is dealt with, remove {losses.path}")


def _disk(settings: Settings) -> Iterator[Finding]:
    folder = settings.data_dir
    while not folder.exists():
        folder = folder.parent
    free = shutil.disk_usage(folder.absolute()).free
    yield Finding("disk", free > LOW_DISK_BYTES, f"{free / 2**30:.1f} GiB free")


def _store(settings: Settings) -> Iterator[Finding]:
    if settings.redis_url is None:
        yield Finding("store", None, "embedded: it runs while the service does, and is checked at its start")
        return
    durability, missing = asyncio.run(_ask_store(settings.redis_url.get_secret_value(), settings))
    yield Finding("store", True, "answers")
    yield Finding("store", not missing, missing or "has what this data directory last saw of it")
    yield Finding(
        "durability",
        durability == "always",
        f"appendfsync is {durability}"
        + ("" if durability == "always" else ": an acknowledged write can be lost when the server dies"),
    )


async def _ask_store(url: str, settings: Settings) -> tuple[str, str]:
    """Its durability, and what it lacks."""
    store = RedisStore(url, partitions=settings.partitions)
    try:
        await store.open()
        expected = ExpectedStore(store, settings.data_dir, accept_loss=False)
        return await store.durability(), await expected.missing()
    finally:
        await store.close()


def _service(settings: Settings) -> Iterator[Finding]:
    try:
        status, _ = _get(settings, "/healthz")
    except OSError:
        yield Finding("service", None, f"nothing listens on {settings.host}:{settings.port}")
        return
    if status != http.HTTPStatus.OK:
        raise StartupError(f"what listens on {settings.host}:{settings.port} is not Shortlist")
    status, ready = _get(settings, "/readyz")
    good = status == http.HTTPStatus.OK
    yield Finding("service", good, "is ready" if good else f"is not ready: {ready.get('detail')}")
    _, facts = _get(settings, "/v1/status")
    yield Finding("backlog", True, f"{facts.get('backlog')} rewards are waiting to be applied")
    yield Finding(
        "durability", facts.get("store") == "always", f"the store's appendfsync is {facts.get('store')}"
    )
    if facts.get("loss"):
        yield Finding("loss", False, f"the service says: {facts['loss']}")


def _get(settings: Settings, path: str) -> tuple[int, dict[str, object]]:
    connection = http.client.HTTPConnection(settings.host, settings.port, timeout=TIMEOUT_S)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read())
    finally:
        connection.close()
