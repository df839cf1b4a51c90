"""What a reward costs on disk: the growth of the data folder, and how fast rewards come in.

    python -m load_tests.bytes_per_reward [--dims 16 64 256 1024] [--contexts 32,30,8 32,32,31] [--rewards N]
        [--bursts] [--json FILE]

Rewards are sent one after the other, each when the one before it is applied, to one global learner of a
service with the embedded store: so many that the learner gets two checkpoints. ``--contexts``: of bandits
with a context, each as d,m,p; a learner has d + p m numbers. ``--bursts``: one request of 10,000 observations
of one learner, and 100,000 keys with one observation each, until all are applied.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

from examples.service import SHORTLIST, running
from shortlist_client import Client
from shortlist_client.bodies import ChooseBody, ObservationItem
from studies.measurement import report

ARMS, SEED = 50, 1
DIMS = (16, 64, 256, 1_024)
CHECKPOINTS = 2
BATCH = 1_000
BURST, KEYS, BURST_DIM = 10_000, 100_000, 16

Scope = Literal["global", "per_key"]


def main(arguments: list[str] | None = None) -> int:
    """Measure, print, and write the figures."""
    parser = argparse.ArgumentParser(prog="python -m load_tests.bytes_per_reward", description=__doc__)
    parser.add_argument("--dims", type=int, nargs="*", default=DIMS)
    parser.add_argument("--contexts", type=_sizes, nargs="*", default=CONTEXTS, metavar="d,m,p")
    parser.add_argument("--rewards", type=int, help="to send, at each dimension")
    parser.add_argument("--bursts", action="store_true", help="also send many at once")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write machine, versions and all figures")
    parsed = parser.parse_args(arguments)
    rows = [one_by_one(Sizes(dim), parsed.rewards) for dim in parsed.dims]
    rows += [one_by_one(sizes, parsed.rewards) for sizes in parsed.contexts]
    if parsed.bursts:
        rows += [burst("global", BURST), burst("per_key", KEYS)]
    result = report("bytes_per_reward", rows, seed=SEED)
    if parsed.json is not None:
        parsed.json.write_text(json.dumps(result, indent=1) + "\n")
    return 0


class Sizes(NamedTuple):
    """Dimension of the arms, numbers of the context, and how many directions of the arms interact with it."""

    dim: int
    context: int = 0
    interactions: int = 0

    @property
    def learner(self) -> int:
        return self.dim + self.context * self.interactions


CONTEXTS = (Sizes(32, 30, 8), Sizes(32, 32, 31))


def _sizes(text: str) -> Sizes:
    return Sizes(*map(int, text.split(",")))


def one_by_one(sizes: Sizes, rewards: int | None) -> dict[str, Any]:
    """Bytes a reward, and rewards a second."""
    count = rewards or max(500, CHECKPOINTS * sizes.learner)
    rng = np.random.default_rng(SEED)
    with _service(sizes, "global") as (client, folder):
        tokens: list[str] = []
        while len(tokens) < count:
            asks: list[ChooseBody] = [{}] * min(BATCH, count - len(tokens))
            if sizes.context:
                asks = [{"context": rng.normal(size=sizes.context).tolist()} for _ in asks]
            tokens += [choice.decision for choice in client.choose_batch("b", asks, once=False).results]
        before, began = _size(folder), time.perf_counter()
        for token in tokens:
            client.reward(token, 0.5, wait=True)
        seconds, grown = time.perf_counter() - began, _size(folder) - before
    return _row("one by one", sizes, count, grown, seconds)


def burst(scope: Scope, count: int) -> dict[str, Any]:
    """Observations in requests of 10,000, of one learner or each of a key of its own."""
    rng = np.random.default_rng(SEED)
    with _service(Sizes(BURST_DIM), scope) as (client, folder):
        before, began = _size(folder), time.perf_counter()
        for first in range(0, count, BURST):
            items: list[ObservationItem] = [
                {"id": f"{number}", "arm": f"a{rng.integers(ARMS)}", "value": 0.5}
                for number in range(first, min(first + BURST, count))
            ]
            if scope == "per_key":
                items = [{**item, "key": f"key-{item['id']}"} for item in items]
            client.observe("b", items, wait=True)
        seconds, grown = time.perf_counter() - began, _size(folder) - before
    return _row(f"burst, {scope}", Sizes(BURST_DIM), count, grown, seconds)


def _row(what: str, sizes: Sizes, count: int, grown: int, seconds: float) -> dict[str, Any]:
    context = {"context": sizes.context, "interactions": sizes.interactions, "learner_dim": sizes.learner}
    return {
        "what": what,
        "dim": sizes.dim,
        **(context if sizes.context else {}),
        "rewards": count,
        "bytes_per_reward": round(grown / count),
        "per_s": round(count / seconds, 1),
    }


@contextmanager
def _service(sizes: Sizes, scope: Scope) -> Iterator[tuple[Client, Path]]:
    """A client of a new service with one bandit ``b``, and its data folder."""
    rng = np.random.default_rng(SEED)
    with tempfile.TemporaryDirectory(prefix="shortlist-") as scratch:
        folder = Path(scratch, "data")
        command = ["-c", SHORTLIST, "serve", "--port", "0", "--log-level", "info", "--data-dir", str(folder)]
        with running(command, log=Path(scratch, "service.log")) as server, server.connect() as client:
            client.put_catalogue("c", dim=sizes.dim)
            client.upsert_arms("c", rng.normal(size=(ARMS, sizes.dim)), ids=[f"a{n}" for n in range(ARMS)])
            context: dict[str, Any] = {}
            if sizes.context:
                context = {"context": {"dim": sizes.context}, "interactions": sizes.interactions}
            client.put_bandit("b", catalogue="c", policy="sub_ts", scope=scope, **context)
            yield client, folder


def _size(folder: Path) -> int:
    """Bytes of all files: every answer waits until they are written."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


if __name__ == "__main__":
    raise SystemExit(main())
