"""A catalogue that follows another one, over real processes and through kills."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import msgspec
import numpy as np
import pytest

from service_process import serving
from shortlist_client import Client, errors
from waiting import wait_until_sync

pytestmark = pytest.mark.rest

ARMS = 3_000
PAGE = 1_000


def embedding(version: int) -> bytes:
    """An embedding by fields alone: the two numbers of an arm change places."""
    numbers = {"linear": np.array([[0.0, 1.0], [1.0, 0.0]], dtype="<f4"), "shift": np.zeros(2, dtype="<f4")}
    counts = {"rewards": 1, "keys": 1, "arms": 0, "without": ARMS}
    head = {"catalogue": "copy", "version": version, "kappa": 1.0, **counts}
    block = msgspec.msgpack.encode(head | {name: each.tobytes() for name, each in numbers.items()})
    return len(block).to_bytes(4, "little") + block


def arms_of(client: Client, name: str) -> dict[str, list[float]]:
    return {arm.id: list(arm.features) for arm in client.arms(name, page_size=PAGE)}


def holds(client: Client, expected: dict[str, list[float]]) -> bool:
    return arms_of(client, "copy") == expected


def test_what_is_written_while_the_follower_is_killed_arrives(tmp_path: Path):
    """Killed while it takes arms over, three times; each time more are written and deleted before."""
    rows = np.random.default_rng(0).normal(size=(ARMS, 2)).astype(np.float32).astype(float)
    for number in range(4):
        with serving(tmp_path) as service, Client(service.url) as client:
            if number == 0:
                client.put_catalogue("source", dim=2)
                client.upsert_arms("source", rows, ids=[f"a{row}" for row in range(ARMS)])
                client.make_embedding("source", embedding(client.get_catalogue("source").version))
            some = range(number * 500, number * 500 + 400)
            client.upsert_arms("source", rows[some] + number, ids=[f"a{row}" for row in some])
            client.delete_arms(
                "source", [f"a{row}" for row in range(ARMS - 100 * number - 100, ARMS - 100 * number)]
            )
            if number < 3:
                service.kill()
                continue
            turned = {arm: features[::-1] for arm, features in arms_of(client, "source").items()}
            follows = partial(holds, client, turned)
            wait_until_sync(follows, what="all of it is there")
            assert client.get_catalogue("copy").filled
            with pytest.raises(errors.Conflict):
                client.delete_arms("copy", ["a0"])
