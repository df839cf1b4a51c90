"""A whole installation of real processes that can be killed: a store, replicas and workers."""

import itertools
import os
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import redis

from app.storage.embedded.server import find_binary
from redis_cluster import NODES, RedisCluster
from service_process import Service, ShortlistProcess, run
from waiting import wait_until_sync


class Redis:
    """A server on a unix socket that syncs every write. ``restart`` starts it again on the same data."""

    def __init__(self, folder: Path, *, preload: dict[str, str] | None = None) -> None:
        self.folder = folder
        self.folder.mkdir(parents=True)
        self.socket = folder / "server.sock"
        self._preload = preload or {}
        self.process = self._launch()

    @property
    def url(self) -> str:
        return f"unix://{self.socket}"

    def close(self) -> None:
        self.kill()

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def restart(self) -> None:
        self.process = self._launch()

    def _launch(self) -> subprocess.Popen[bytes]:
        options = {
            "port": "0", "unixsocket": self.socket, "dir": self.folder, "appendonly": "yes",
            "appendfsync": "always", "save": "", "maxmemory-policy": "noeviction",
        }  # fmt: skip
        words = [str(word) for name, value in options.items() for word in (f"--{name}", value)]
        self.socket.unlink(missing_ok=True)
        with (self.folder / "server.log").open("ab") as log:
            process = subprocess.Popen(
                [str(find_binary()), *words],
                stdout=log,
                stderr=log,
                env={**os.environ, **self._preload},
                restore_signals=False,  # SIGXFSZ stays ignored: a full disk is an error of a write
            )
        wait_until_sync(self._answers, what="the store answers")
        return process

    def _answers(self) -> bool:
        try:
            with redis.Redis(unix_socket_path=str(self.socket)) as client:
                return bool(client.ping())
        except redis.RedisError:
            return False


class Cluster:
    """A Redis Cluster of three nodes. ``kill`` kills one, the next time the next one."""

    def __init__(self, folder: Path) -> None:
        self._cluster = RedisCluster(folder)
        self._cluster.__enter__()
        self._nodes = itertools.cycle(range(NODES))
        self._down: int | None = None

    @property
    def url(self) -> str:
        return self._cluster.url

    def kill(self) -> None:
        self._down = next(self._nodes)
        self._cluster.kill(self._down)

    def restart(self) -> None:
        assert self._down is not None
        self._cluster.restart(self._down)

    def close(self) -> None:
        self._cluster.stop()


class Crew:
    """The worker processes of one store; ``pids`` are those that run."""

    def __init__(self, folder: Path, url: str, **settings: str) -> None:
        self._folder = folder
        self._arguments = ("worker", "--redis-url", url)
        self._settings = settings
        self._workers: dict[int, ShortlistProcess] = {}

    @property
    def pids(self) -> list[int]:
        return list(self._workers)

    def hire(self) -> int:
        worker = ShortlistProcess(self._folder, self._arguments, self._settings)
        self._workers[worker.pid] = worker
        return worker.pid

    def kill(self, pid: int) -> None:
        self._workers.pop(pid).kill()

    def close(self) -> None:
        for pid in self.pids:
            self.kill(pid)


class Town:
    """A store, replicas that apply no rewards, and workers that do."""

    def __init__(
        self,
        folder: Path,
        *,
        replicas: int,
        workers: int,
        preload: dict[str, str] | None,
        cluster: bool,
        **settings: str,
    ) -> None:
        self.folder = folder
        self.settings = {"SHORTLIST_LEASE_S": "0.5", **settings}
        place = folder / "redis"
        self.redis: Any = Cluster(place) if cluster else Redis(place, preload=preload)
        notes = {"SHORTLIST_DATA_DIR": str(folder / "workers")}
        self.crew = Crew(folder / "worker-logs", self.redis.url, **notes, **self.settings)
        self.replicas = [self._replica() for _ in range(replicas)]
        for _ in range(workers):
            self.crew.hire()

    def replace(self, place: int) -> None:
        """Kill a replica and start another in its place."""
        self.replicas[place].kill()
        self.replicas[place] = self._replica()

    def close(self) -> None:
        for replica in self.replicas:
            replica.kill()
        self.crew.close()
        self.redis.close()

    def check_replay(self) -> None:
        """Check that every learner equals a replay of the log, bit for bit."""
        done = run("replay", "--check", "--redis-url", self.redis.url, cwd=self.folder)
        assert done.returncode == 0, done.stdout + done.stderr
        assert " 0 differ, 0 are older" in done.stdout, done.stdout

    def _replica(self) -> Service:
        arguments = ("--redis-url", self.redis.url, "--no-worker")
        return Service(self.folder / "logs", self.folder / "data", *arguments, **self.settings)


@contextmanager
def town(
    folder: Path,
    *,
    replicas: int = 1,
    workers: int = 1,
    preload: dict[str, str] | None = None,
    cluster: bool = False,
    **settings: str,
) -> Iterator[Town]:
    """A ``Town`` for the length of a ``with``.

    ``preload``: variables for the environment of the store, which is then no ``cluster``.
    """
    with ExitStack() as stack:
        options = {"preload": preload, "cluster": cluster}
        made = Town(folder, replicas=replicas, workers=workers, **options, **settings)
        stack.callback(made.close)
        yield made
