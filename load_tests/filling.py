"""A service with something to do: a catalogue, a bandit, and keys that have all learned something."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator

import numpy as np

from examples.service import Server
from load_tests.wrk import LoadError
from shortlist_client import Client, ShortlistError
from shortlist_client.bodies import ChooseBody, ObservationItem

CATALOGUE, BANDIT = "arms", "load"
OBSERVATIONS = 3
BATCH = 1_000
INDEX_S = 300.0
POLL_S = 0.2
QUIET_POLLS = 35  # an index at rest for five seconds is made again if arms are beside it
MOST_FRESH = 0.02  # arms beside the index that are too few to be folded into it


def fill(server: Server, *, arms: int, dim: int, keys: int, seed: int) -> None:
    """Gaussian arms, a Sub-TS bandit, ``OBSERVATIONS`` for each key; returns when the index is built."""
    rng = np.random.default_rng(seed)
    with server.connect(timeout_s=INDEX_S) as client:
        client.put_catalogue(CATALOGUE, dim=dim)
        _import(client, arms, dim, rng)
        client.put_bandit(BANDIT, catalogue=CATALOGUE, policy="sub_ts", scope="per_key")
        for first in range(0, keys, BATCH):
            items: list[ObservationItem] = [
                {
                    "id": f"{key}-{number}",
                    "key": key,
                    "arm": f"arm-{rng.integers(arms)}",
                    "value": rng.normal(),
                }
                for key in names(first, min(first + BATCH, keys))
                for number in range(OBSERVATIONS)
            ]
            receipt = client.observe(BANDIT, items, wait=True)
            if receipt.accepted != len(items):
                raise LoadError(f"observations were not accepted: {receipt}")
        await_index(client, arms)


def names(first: int, last: int) -> list[str]:
    """Keys as the scenarios spell them."""
    return [f"user-{number:05d}" for number in range(first, last)]


def decide(server: Server, count: int, keys: int) -> list[str]:
    """Tokens of ``count`` new decisions, for all keys in turn. Afterwards those learners are in memory."""
    tokens: list[str] = []
    with server.connect() as client:
        while len(tokens) < count:
            numbers = range(len(tokens), min(len(tokens) + BATCH, count))
            asks: list[ChooseBody] = [{"key": f"user-{number % keys:05d}"} for number in numbers]
            tokens += [choice.decision for choice in client.choose_batch(BANDIT, asks, once=False).results]
    return tokens


def _import(client: Client, arms: int, dim: int, rng: np.random.Generator) -> None:
    def lines() -> Iterator[bytes]:
        for first in range(0, arms, BATCH):
            block = rng.standard_normal((min(BATCH, arms - first), dim)).round(6).tolist()
            text = [json.dumps({"id": f"arm-{first + i}", "features": row}) for i, row in enumerate(block)]
            yield ("\n".join(text) + "\n").encode()

    try:
        client.import_arms(CATALOGUE, lines())
    except ShortlistError as error:
        raise LoadError(f"the import failed: {error}") from error


def await_index(client: Client, arms: int) -> None:
    """Wait until the index covers nearly all arms and, for seven seconds, no work on it begins."""
    deadline = time.monotonic() + INDEX_S
    quiet = 0
    while quiet < QUIET_POLLS:
        if time.monotonic() > deadline:
            raise LoadError(f"the index was not built within {INDEX_S:g} s")
        time.sleep(POLL_S)
        index = client.get_catalogue(CATALOGUE).index
        covered = index["size"] == arms and index["fresh"] <= arms * MOST_FRESH
        quiet = quiet + 1 if covered and index["state"] == "ready" else 0
