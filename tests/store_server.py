"""The store that the tests share, or one of a test's own: a server, or three nodes of a Redis Cluster.

SHORTLIST_TEST_STORE=cluster says which (`make test-cluster`).
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from redis_cluster import RedisCluster

from app.storage.embedded_server import EmbeddedServer

ON_CLUSTER = os.environ.get("SHORTLIST_TEST_STORE") == "cluster"


@contextmanager
def store_server(folder: Path, *, binary: Path | None = None) -> Iterator[str]:
    """Its URL, for the length of a ``with``."""
    if not ON_CLUSTER:
        with EmbeddedServer(folder, binary=binary) as server:
            yield server.url
        return
    if not RedisCluster.is_possible():
        pytest.skip("redis-server is not installed")
    with RedisCluster(folder) as cluster:
        yield cluster.url
