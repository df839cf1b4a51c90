"""A Redis Cluster on loopback, of three nodes mostly, from the system's `redis-server`."""

import os
import shutil
import socket
import subprocess
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

import redis

from waiting import wait_until_sync

SLOTS = 16_384
NODES = 3
BUS_OFFSET = 10_000  # the nodes talk to each other on the port plus this
PORTS = range(12_000, 22_000)


class RedisCluster:
    """As a context manager; every node writes an append-only file and syncs it before it answers.

    ``replicas``: of each of the ``nodes``, which come first in ``ports`` and ``processes``. The replicas of
    node i are i + nodes, i + 2 nodes and so on. ``settings``: further ones of every node.
    """

    def __init__(
        self,
        folder: Path,
        *,
        nodes: int = NODES,
        replicas: int = 0,
        settings: Mapping[str, object] | None = None,
    ) -> None:
        self._folder = folder
        self._primaries = nodes
        self._nodes = nodes * (1 + replicas)
        self._settings = settings or {}
        self.ports: list[int] = []
        self.processes: list[subprocess.Popen[bytes]] = []

    @staticmethod
    def is_possible() -> bool:
        return shutil.which("redis-server") is not None

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.ports[0]}"

    def __enter__(self) -> Self:
        try:
            self.ports = _free_ports(self._nodes)
            self.processes = [self._launch(port) for port in self.ports]
            self._join()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def stop(self) -> None:
        for process in self.processes:
            process.kill()
            process.wait()

    def kill(self, node: int) -> None:
        self.processes[node].kill()
        self.processes[node].wait()

    def launch(self, node: int) -> None:
        """Start a node that has ended. It may take part a while later."""
        self.processes[node] = self._launch(self.ports[node])

    def restart(self, node: int) -> None:
        self.launch(node)
        self.await_ok()

    def flush(self) -> None:
        for port in self.ports:
            with redis.Redis(port=port) as node:
                node.flushall()

    def await_ok(self) -> None:
        wait_until_sync(
            lambda: all(_is_ok(port, self._nodes) for port in self.ports),
            what="all nodes of the cluster agree",
        )

    def _launch(self, port: int) -> subprocess.Popen[bytes]:
        folder = self._folder / str(port)
        folder.mkdir(parents=True, exist_ok=True)
        options = {
            "port": port, "bind": "127.0.0.1", "dir": folder, "cluster-enabled": "yes",
            "cluster-config-file": "nodes.conf", "cluster-node-timeout": 2_000, "appendonly": "yes",
            "appendfsync": "always", "save": "", "protected-mode": "no", **self._settings,
        }  # fmt: skip
        words = [str(word) for name, value in options.items() for word in (f"--{name}", value)]
        with (folder / "server.log").open("ab") as log:
            return subprocess.Popen(["redis-server", *words], stdout=log, stderr=log)

    def _join(self) -> None:
        nodes = [redis.Redis(port=port) for port in self.ports]
        for node in nodes:
            wait_until_sync(lambda node=node: _answers(node), what="a node answers")  # type: ignore[misc]
        for number, node in enumerate(nodes):
            node.execute_command("CLUSTER SET-CONFIG-EPOCH", number + 1)
            if number < self._primaries:
                first, last = (place * SLOTS // self._primaries for place in (number, number + 1))
                node.execute_command("CLUSTER ADDSLOTS", *range(first, last))
            node.execute_command("CLUSTER MEET", "127.0.0.1", self.ports[0])
        self.await_ok()
        for number, node in enumerate(nodes[self._primaries :]):
            primary = nodes[number % self._primaries].execute_command("CLUSTER MYID").decode()
            node.execute_command("CLUSTER REPLICATE", primary)
            wait_until_sync(
                lambda node=node: node.info("replication").get("master_link_status") == "up",  # type: ignore[misc]
                what="a replica has its primary's data",
            )
        for node in nodes:
            node.close()


def _answers(node: redis.Redis) -> bool:
    try:
        return bool(node.ping())
    except redis.ConnectionError:
        return False


def _is_ok(port: int, nodes: int) -> bool:
    with redis.Redis(port=port) as node:
        try:
            info = node.execute_command("CLUSTER INFO")
        except redis.RedisError:
            return False
        words = (
            info
            if isinstance(info, dict)
            else dict(line.split(":") for line in info.decode().split() if ":" in line)
        )
        return words["cluster_state"] == "ok" and int(words["cluster_known_nodes"]) == nodes


def _free_ports(count: int) -> list[int]:
    """Free ports whose bus ports are free too.

    They lie below those that the system gives to connections. The search starts at a place of this process's
    own, because another test process may look for ports at the same time.
    """
    found: list[int] = []
    for number in range(len(PORTS)):
        port = PORTS[(os.getpid() * 97 + number) % len(PORTS)]
        if _is_free(port) and _is_free(port + BUS_OFFSET):
            found.append(port)
        if len(found) == count:
            return found
    raise AssertionError("no free port")


def _is_free(port: int) -> bool:
    try:
        socket.create_server(("127.0.0.1", port)).close()
    except OSError:
        return False
    return True
