"""`shortlist bench search-results`: a search engine's results, ranked again with the numbers of each request.

World
    document        16 numbers, normal, of length 1 on average; its taste for a key is x.theta_key
    request         of one of 150 keys: 100 random documents of 5,000, each with a text score and a distance
    utility u       .71 text score - .5 distance + .5 taste, where each has deviation 1
    click           with probability .1 + .15 u, within 0 and 1
    caller's order  by text score

The bandit knows documents by their ids, and text score and distance by ``match``. It shows one of the
hundred, learns whether it was clicked, and its prior is fitted again after each 100 requests, besides when
the service does so by itself. A document is shown less than once on average, and has no effect of its own:
``arm_effects`` have nothing to find.

Notation
    exploration, effects    settings of the bandit
    earned          expected clicks of what was shown, beside those of the first in the caller's order
    last            the same of the last third of the requests
    least, most     ``earned`` of the worst and the best seed
    best            expected clicks of the best of each hundred, beside the caller's: nobody can earn more
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from examples.service import temporary_service
from shortlist.types import Matrix, Vector
from shortlist_client import Client
from studies.measurement import report

SEEDS = range(11, 21)
DOCUMENTS, DIM, KEYS, CANDIDATES = 5_000, 16, 150, 100
REQUESTS, REFRESHED_EACH = 3_000, 100
TEXT, DISTANCE, TASTE = 0.71, 0.5, 0.5
LEAST, SLOPE = 0.1, 0.15
SETTINGS: Sequence[Mapping[str, Any]] = (
    {"exploration": "auto", "arm_effects": "auto"},
    {"exploration": "auto", "arm_effects": "off"},
    {"exploration": 0.1, "arm_effects": "auto"},
)
MATCH: Any = {"fields": [{"name": "text", "kind": "number"}, {"name": "distance", "kind": "number"}]}


@dataclass(frozen=True, slots=True)
class SearchRequest:
    """``text``, ``distance``: of its documents, and ``clicks``: the probability of each. Shapes: all (n,)."""

    key: int
    documents: Sequence[int]
    text: Vector
    distance: Vector
    clicks: Vector

    @property
    def candidates(self) -> list[Any]:
        said = zip(self.documents, self.text.tolist(), self.distance.tolist(), strict=True)
        return [
            {"id": f"d{document}", "match": {"text": text, "distance": distance}}
            for document, text, distance in said
        ]


class SearchWorld:
    """``documents``: their features (n, d)."""

    def __init__(self, seed: int) -> None:
        self._rng = rng = np.random.default_rng(seed)
        self.documents: Matrix = rng.normal(size=(DOCUMENTS, DIM)) / np.sqrt(DIM)
        self._tastes: Matrix = rng.normal(size=(KEYS, DIM))

    def requests(self, count: int) -> Iterator[SearchRequest]:
        rng = self._rng
        for _ in range(count):
            key = int(rng.integers(KEYS))
            documents = rng.choice(DOCUMENTS, CANDIDATES, replace=False)
            text, distance = rng.normal(size=(2, CANDIDATES))
            taste = self.documents[documents] @ self._tastes[key]
            utility = TEXT * text - DISTANCE * distance + TASTE * taste
            clicks = (LEAST + SLOPE * utility).clip(0.0, 1.0)
            yield SearchRequest(key, documents.tolist(), text, distance, clicks)

    def is_clicked(self, probability: float) -> bool:
        return bool(self._rng.random() < probability)


def run(quick: bool) -> dict[str, Any]:
    """Serve 3,000 requests of ten worlds (quick: 600 of one) with each settings; print and return rows."""
    seeds, count = (SEEDS[:1], 600) if quick else (SEEDS, REQUESTS)
    rows = []
    for settings in SETTINGS:
        played = np.array([_served(seed, count, settings) for seed in seeds])
        rows.append(row_of(settings, played))
    return report("search-results", rows, seed=SEEDS[0])


def row_of(settings: Mapping[str, Any], played: Vector) -> dict[str, Any]:
    """Shapes: played (seeds, 3, requests), expected clicks as ``play`` has them."""
    totals, last = played.sum(axis=2), played[:, :, -played.shape[2] // 3 :].sum(axis=2)
    earned = totals[:, 0] / totals[:, 1]
    return {
        "exploration": settings["exploration"],
        "effects": settings["arm_effects"],
        "requests": played.shape[2],
        "seeds": len(played),
        "earned": float(totals[:, 0].sum() / totals[:, 1].sum()),
        "last": float(last[:, 0].sum() / last[:, 1].sum()),
        "least": float(earned.min()),
        "most": float(earned.max()),
        "best": float(totals[:, 2].sum() / totals[:, 1].sum()),
    }


def _served(seed: int, count: int, settings: Mapping[str, Any]) -> Matrix:
    with temporary_service() as service, service.connect() as client:
        return play(client, SearchWorld(seed), count, settings)


def play(client: Client, world: SearchWorld, count: int, settings: Mapping[str, Any]) -> Matrix:
    """Expected clicks in each request: of what a new bandit showed, of the caller's first, of the best.

    Shape: -> (3, count).
    """
    client.put_catalogue("documents", dim=DIM)
    client.upsert_arms("documents", world.documents, ids=[f"d{number}" for number in range(DOCUMENTS)])
    client.put_bandit(
        "search",
        catalogue="documents",
        policy="sub_ts",
        scope="per_key",
        reward={"min": 0, "max": 1},
        match=MATCH,
        **settings,
    )
    earned = np.empty((3, count))
    for number, request in enumerate(world.requests(count)):
        choice = client.choose("search", key=f"k{request.key}", candidates=request.candidates, seed=number)
        place = request.documents.index(int(choice.arms[0].id[1:]))
        probability = float(request.clicks[place])
        client.reward(choice.decision, float(world.is_clicked(probability)), wait=True)
        earned[:, number] = probability, request.clicks[request.text.argmax()], request.clicks.max()
        if number % REFRESHED_EACH == REFRESHED_EACH - 1:
            client.refresh_prior("search")
    return earned
