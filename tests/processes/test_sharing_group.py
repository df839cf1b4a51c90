"""`serve --workers 2` with a catalogue that is large enough to be shared: kills, and a new start."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import httpx
import numpy as np
import pytest

from examples.service import SHORTLIST
from service_process import Service, ShortlistProcess, children, environment, forked_by, serving
from waiting import wait_until, wait_until_sync

pytestmark = pytest.mark.rest

DIM, ARMS = 64, 9_000
TOGETHER = 3_000
TAGS = "red", "green", "blue"
CATALOGUE = {"dim": DIM, "index": {"kind": "exact"}}


def starting(folder: Path, *arguments: str) -> ShortlistProcess:
    """A group whose processes are not yet ready."""
    words = ["serve", "--port", "0", "--data-dir", str(folder / "data"), "--workers", "2", *arguments]
    return ShortlistProcess(folder / "logs", words, {})


@pytest.fixture
def silent_store() -> Iterator[socket.socket]:
    """A store that never answers, so that nobody becomes ready."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener


def url_of(store: socket.socket) -> str:
    return f"redis://127.0.0.1:{store.getsockname()[1]}"


async def put(service: Service, features: np.ndarray, first: int) -> None:
    async with service.client() as http:
        for start in range(0, len(features), TOGETHER):
            arms = [
                {
                    "id": f"a{first + start + row}",
                    "features": each.tolist(),
                    "tags": [TAGS[(first + start + row) % len(TAGS)]],
                }
                for row, each in enumerate(features[start : start + TOGETHER])
            ]
            (await http.put("/v1/catalogues/c/arms", json={"arms": arms})).raise_for_status()


async def every_process_finds(service: Service, features: np.ndarray, rng: np.random.Generator) -> None:
    """New connections, so that any process may answer."""
    for turn in range(12):
        query, tag = rng.standard_normal(DIM), turn % len(TAGS)
        best = f"a{int((features[tag :: len(TAGS)] @ query).argmax()) * len(TAGS) + tag}"
        body = {"query": query.tolist(), "k": 1, "method": "exact", "filter": {"tags": TAGS[tag]}}

        async def found(body: dict = body, best: str = best) -> bool:
            async with service.client() as http:
                answer = await http.post("/v1/catalogues/c/mips", json=body)
                return bool(answer.raise_for_status().json()["arms"][0]["id"] == best)

        await wait_until(found, what="the best arm is found")


def current(folder: Path) -> str | None:
    files = list((folder / "data" / "indexes" / "shared").glob("*/current"))
    return files[0].read_text() if files else None


@pytest.mark.anyio
async def test_any_process_is_killed_and_another_takes_its_part(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    features = rng.standard_normal((ARMS, DIM))
    with serving(tmp_path, "--workers", "2") as service:
        async with service.client() as http:
            (await http.put("/v1/catalogues/c", json=CATALOGUE)).raise_for_status()
        await put(service, features, 0)

        async def published() -> bool:
            return current(tmp_path) is not None

        await wait_until(published, what="the arms are shared")
        for victim in children(service.pid):  # one of them is the maker
            before = current(tmp_path)
            os.kill(victim, signal.SIGKILL)
            more = rng.standard_normal(features.shape)  # so many that it is planned again
            await put(service, more, len(features))
            features = np.concatenate((features, more))
            await every_process_finds(service, features, rng)

            async def made_again(before: str | None = before) -> bool:
                return current(tmp_path) not in {before, None}

            await wait_until(made_again, what="a process makes what is shared")
            await every_process_finds(service, features, rng)
        folder = tmp_path / "data" / "indexes" / "shared"
        for path in [folder, *folder.rglob("*")]:
            with suppress(FileNotFoundError):  # replaced meanwhile
                assert stat.S_IMODE(path.stat().st_mode) in {0o700, 0o600}, path
                assert path.stat().st_uid == os.getuid()
        messages = [record["message"] for record in service.records() if record["level"] == "ERROR"]
        assert all("ended with status -9" in message for message in messages)


@pytest.mark.anyio
async def test_what_a_killed_service_shared_is_cleared_at_the_next_start(tmp_path: Path) -> None:
    rng = np.random.default_rng(2)
    features = rng.standard_normal((ARMS, DIM))
    with serving(tmp_path, "--workers", "2") as service:
        async with service.client() as http:
            (await http.put("/v1/catalogues/c", json=CATALOGUE)).raise_for_status()
        await put(service, features, 0)

        async def published() -> bool:
            return current(tmp_path) is not None

        await wait_until(published, what="the arms are shared")
        pids = children(service.pid)
        for pid in [service.pid, *pids]:
            os.kill(pid, signal.SIGKILL)
        await asyncio.to_thread(service.wait)
    left = tmp_path / "data" / "indexes" / "shared"
    assert any(left.iterdir())
    with serving(tmp_path) as service:
        assert not left.exists() or "SHORTLIST_TEST_WORKERS" in os.environ
        await every_process_finds(service, features, rng)


@pytest.mark.slow
def test_a_process_that_is_killed_before_it_was_ever_ready_is_started_again(tmp_path: Path) -> None:
    service = starting(tmp_path)
    try:
        victims = wait_until_sync(lambda: children(service.pid), what="a process starts")
        os.kill(victims[0], signal.SIGKILL)
        service.await_message("ended with status -9; starting it again")
        port = int(service.await_message('"port"')["port"])
        assert httpx.get(f"http://127.0.0.1:{port}/readyz").is_success
        service.send(signal.SIGTERM)
        assert service.wait() == 0
    finally:
        service.kill()


def test_one_that_is_killed_again_and_again_ends_the_service_which_says_so(
    tmp_path: Path, silent_store: socket.socket
) -> None:
    service = starting(tmp_path, "--redis-url", url_of(silent_store))
    try:
        while service.process.poll() is None:
            for victim in children(service.pid):
                with suppress(ProcessLookupError):  # it has ended by the kill before
                    os.kill(victim, signal.SIGKILL)
        assert service.wait() == 2
        last = service.text().splitlines()[-1]
        assert "was killed 5 times before it was ready (Killed)" in last
        assert "Traceback" not in service.text()
    finally:
        service.kill()


FAILING = """
import sys
import server.serving_group as group
from app.platform.settings import Settings
async def fails(*_, **__):
    raise PermissionError(13, "Permission denied")
group.serve_on = fails
group.serve_group(Settings(data_dir=sys.argv[1], port=0), 2)
"""


def test_an_error_of_the_system_in_a_process_ends_that_process(tmp_path: Path) -> None:
    """It was taken for one of the fork, and the process went on as if it started the others."""
    command = [sys.executable, "-c", FAILING, str(tmp_path)]
    ended = subprocess.run(command, env=environment(), capture_output=True, text=True, check=False)
    assert ended.returncode
    assert 1 <= ended.stderr.count("PermissionError: ") <= 2
    assert "cannot start" not in ended.stderr
    assert "ended at its start; it says why above" in ended.stderr


@pytest.mark.parametrize("is_forker", [False, True])
def test_no_process_outlives_another_one_that_it_needs_not_even_while_it_starts(
    tmp_path: Path, silent_store: socket.socket, is_forker: bool
) -> None:
    """They kept the port until their start had failed or was done."""
    words = ["serve", "--port", "0", "--workers", "2", "--redis-url", url_of(silent_store)]
    command = [sys.executable, "-c", SHORTLIST, *words, "--data-dir", str(tmp_path)]
    with subprocess.Popen(command, env=environment(), stderr=subprocess.PIPE) as process:
        with silent_store.accept()[0]:  # a process is at its start
            os.kill(forked_by(process.pid)[0] if is_forker else process.pid, signal.SIGKILL)
            _, errors = process.communicate()  # which ends with the last of them
        assert process.returncode == (2 if is_forker else -signal.SIGKILL), errors
        assert (b"was killed (Killed)" in errors) == is_forker
        assert b"Traceback" not in errors
