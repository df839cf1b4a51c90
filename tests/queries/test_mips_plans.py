"""With a seed a plan is a function of the request and the catalogue; without one, of what reads cost here."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from app.catalogues.blocked_copies import BlockedCopies, BlockedCopy
from app.indexes.live import IndexOptions, LiveIndex
from app.queries.mips import METHODS, SEEDED, CatalogueJob, MipsRequest, VectorsJob
from shortlist.mips.answer import Answer
from shortlist.mips.read_costs import READS_ALONE, ReadCosts

N, DIM = 300, 2_048
# Every query of a machine where nothing but overhead takes time.
ALL_OVERHEAD = replace(READS_ALONE, query=1e12)


class Costs:
    """Costs that are asked for; ``asked`` counts how often."""

    def __init__(self, costs: ReadCosts) -> None:
        self.costs, self.asked = costs, 0

    def __call__(self) -> ReadCosts:
        self.asked += 1
        return self.costs


def data(dim: int = DIM) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    query = rng.choice((-1.0, 1.0), size=dim)
    vectors = rng.uniform(-1, 1, (N, dim)) + np.linspace(0, 1, N)[:, None] * query
    return vectors, query


def search(request: MipsRequest, costs: Costs) -> Answer:
    vectors, query = data(len(request.query))
    index = LiveIndex(vectors.shape[1], IndexOptions(kind="exact"))
    index.upsert([str(row) for row in range(N)], vectors, range(N))
    snapshot = index.snapshot()
    copies = BlockedCopies(1 << 30, costs=costs)
    prepared = BlockedCopy("c", 1, snapshot.table)
    job = CatalogueJob(7, snapshot, prepared, copies, query, request, list)
    return METHODS[request.method].in_catalogue(job)


def request_of(method: str, seed: int | None, dim: int = DIM) -> MipsRequest:
    return MipsRequest(data(dim)[1], 3, method, 0.3, 0.05, seed=seed)  # type: ignore[arg-type]


@pytest.mark.parametrize("method", ["bounded_me", "racing"])
def test_a_seed_gives_the_same_answer_whatever_reads_cost(method):
    found = []
    for costs in (READS_ALONE, SEEDED, ALL_OVERHEAD):
        asked = Costs(costs)
        found.append(search(request_of(method, seed=5), asked))
        assert asked.asked == 0
    for other in found[1:]:
        assert other.rows.tolist() == found[0].rows.tolist()
        assert other.values.tolist() == found[0].values.tolist()
        assert (other.reads, other.guarantee) == (found[0].reads, found[0].guarantee)
    assert found[0].guarantee.kind == "pac"


@pytest.mark.rest
@pytest.mark.parametrize("method", ["bounded_me", "racing"])
def test_vectors_of_a_request_are_searched_the_same_on_every_machine(method):
    vectors, query = data()
    request = replace(request_of(method, seed=5), value_range=(-2.0, 2.0))
    first, second = (METHODS[method].in_vectors(VectorsJob(vectors, query, request)) for _ in range(2))
    assert first.rows.tolist() == second.rows.tolist()
    assert first.reads == second.reads


@pytest.mark.parametrize("method", ["bounded_me", "racing"])
def test_without_a_seed_the_plan_follows_the_costs(method):
    cheap, dear = Costs(READS_ALONE), Costs(ALL_OVERHEAD)
    assert search(request_of(method, seed=None), cheap).guarantee.kind == "pac"
    assert search(request_of(method, seed=None), dear).guarantee.kind == "exact"
    assert cheap.asked > 0
    assert dear.asked > 0


@pytest.mark.rest
@pytest.mark.parametrize("method", ["bounded_me", "racing", "exact"])
def test_nothing_is_measured_where_everything_is_compared_anyway(method):
    costs = Costs(READS_ALONE)
    assert search(request_of(method, seed=None, dim=64), costs).guarantee.kind == "exact"
    assert costs.asked == 0
