"""A whole installation of real processes that can be killed: a store, replicas and workers."""

import itertools
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from redis_cluster import NODES, RedisCluster
from redis_process import Redis
from service_process import Service, ShortlistProcess, run


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
        self.settings = settings
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
