"""The store that the tests share, or one of a test's own: a server, or three nodes of a Redis Cluster.

SHORTLIST_TEST_STORE=cluster says which (`make test-cluster`).
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from app.storage.embedded.server import EmbeddedServer
from app.storage.store import Store

ON_CLUSTER = os.environ.get("SHORTLIST_TEST_STORE") == "cluster"
PATIENCE_S = 120.0


@contextmanager
def store_server(folder: Path, *, binary: Path | None = None) -> Iterator[str]:
    """Its URL, for the length of a ``with``."""
    if not ON_CLUSTER:
        with EmbeddedServer(folder, binary=binary) as server:
            yield server.url
        return
    from redis_cluster import RedisCluster  # noqa: PLC0415 - `make test` has no cluster

    if not RedisCluster.is_possible():
        pytest.skip("redis-server is not installed")
    with RedisCluster(folder) as cluster:
        yield cluster.url


def patient_store(url: str, **options: Any) -> Store:
    """A store that waits as long as a busy machine takes. Not open yet; ``options`` as for ``Store``."""
    return Store(url, pool_timeout_s=PATIENCE_S, socket_timeout_s=PATIENCE_S, **options)
