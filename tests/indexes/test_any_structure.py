"""A structure that the service does not know serves a catalogue: flat, with 8 bits a number, in numpy.

It is registered by these tests alone. What it cannot do it says: it does not grow, is not written into shared
files, and is not measured again. All else works, also over HTTP, since nothing asks which structure it is.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from numpy.typing import NDArray

from api_client import Api, running
from app.filtering import filter_plan
from app.filtering.filter_limits import FilterLimits
from app.filtering.filter_plan import PlanOptions, plan_filter
from app.filtering.index_search import IndexSearch
from app.filters.filter import parse
from app.indexes.eligible_rows import eligible_rows
from app.indexes.index_limits import IndexLimits
from app.indexes.live import IndexOptions, LiveIndex
from app.indexes.shared_arms import SharedArms
from headless_service import PATIENT
from planned_tables import measure
from shortlist.index import planner
from shortlist.index.index import Index, ProposingIndex, PublicationReader, PublicationWriter, Saving
from shortlist.index.planner import Candidate, Plan, Task, measured
from shortlist.index.probes import ExactLists, Probes, Quality, Trial
from shortlist.index.quality import Degradation
from shortlist.index.table import TableSnapshot, positions_of
from shortlist.mips.exact import ranked
from shortlist.types import NO_ROWS, Rows, TopK, Vector
from tests.indexes.brute_force import best_ids, filled, only_structures
from waiting import wait_until

pytestmark = pytest.mark.rest

DIM, ARMS = 8, 3_000
SHORTLIST = 40


class FlatIndex(ProposingIndex):
    """Codes (n, d) of 8 bits, and what each row of them is to be multiplied with (n,)."""

    kind: ClassVar[Any] = "flat8"

    def __init__(self, table: TableSnapshot, rows: Rows, *, spoilt: bool = False) -> None:
        super().__init__(table.rows, Degradation(len(rows)))
        features = table.features[rows]
        self._scales = np.abs(features).max(axis=1) / 127.0
        self._codes = np.rint(features / self._scales[:, None]).astype(np.int8)
        if spoilt:
            self._codes[:] = 0
        self._rows, self._places = rows, positions_of(rows, table.rows)

    @property
    def rows(self) -> Rows:
        return self._rows

    @property
    def memory_bytes(self) -> int:
        return self._codes.nbytes + self._scales.nbytes + self._rows.nbytes + self._places.nbytes

    def _best(self, query: Vector, count: int) -> Rows | None:
        if count > len(self._rows) - self.degradation.dead:
            return None
        scores = self._scales * (self._codes @ query)
        scores[self.degradation.gone] = -np.inf
        return self._rows[np.argpartition(-scores, count - 1)[:count]]

    def search(self, table: TableSnapshot, query: Vector, k: int, exclude: Rows = NO_ROWS) -> TopK | None:
        rows = self._best(query, SHORTLIST + 2 * k + len(exclude))
        if rows is None:
            return None
        rows = rows[rows >= 0]
        rows = rows[table.is_alive(rows) & ~np.isin(rows, exclude)]
        return ranked(rows, k, table.features, query, exact=False) if len(rows) >= k else None

    def search_among(self, query: Vector, count: int, let_in: np.ndarray) -> Rows | None:
        rows = self._best(query, count)
        return None if rows is None else rows[(rows >= 0) & let_in[rows]]

    def tombstone(self, rows: Rows) -> None:
        places = self._places[rows[rows < self.covered]].astype(np.int64)
        places = places[places >= 0]
        self.degradation.tombstone(places[~self.degradation.gone[places]])

    def moved(self, position: Rows, covered: int) -> FlatIndex:
        other = object.__new__(type(self))
        other.__dict__.update(self.__dict__)
        other.covered, other._rows = covered, np.append(position, -1)[self._rows]
        other._places = positions_of(other._rows, covered)
        return other

    def answered(self, quality: Quality, probes: Probes, lists: ExactLists) -> None:
        winners = self._places[probes.winners].astype(np.int64)
        self.degradation.answered(quality, winners, probes.groups)


def attempt(task: Task) -> tuple[Plan, Index | None]:
    return measured(task, FlatIndex(task.table, task.table.live_rows), build_s=0.0)


def timed(search: Any, exact: Any, probes: Probes) -> Trial:
    """Quality is measured; times are not, so that nothing counts on them."""
    del exact
    return Trial(measure(search, probes), us=10.0, exact_us=20.0)


LIMITS = IndexLimits(small_numbers=0, shared_numbers=0, least_dead=100)
"""Small catalogues are served as large ones are."""


@pytest.fixture(autouse=True)
def _registered(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Only this structure is tried."""
    for module in (planner, filter_plan):
        monkeypatch.setattr(module, "compare", timed)
    with only_structures(Candidate(FlatIndex.kind, attempt)):
        yield


def gaussian(count: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((count, DIM))


def done(index: LiveIndex, kind: str = "maintenance") -> Any:
    index.rest_until = 0.0
    if index.sharing is not None:
        index.sharing.rest_until = 0.0
    job = getattr(index, f"begin_{kind}")()
    if job is not None:
        job.run()
        index.finish(job)
    return job


def check(index: LiveIndex, arms: dict[str, tuple[int, np.ndarray]], seed: int) -> None:
    """Arms that are there, with their scores, the best first; and of 19 in 20 queries the best one."""
    view, found = index.snapshot(), 0
    for number, query in enumerate(gaussian(60, seed)):
        excluded = best_ids(arms, query, 2)[0] if number % 2 else []
        hits = view.search(query, 3, view.rows_of(excluded))
        ids = [view.id_of(row) for row in hits.rows.tolist()]
        assert len(set(ids)) == 3
        assert not set(ids) & set(excluded)
        assert hits.scores.tolist() == pytest.approx([float(arms[each][1] @ query) for each in ids])
        assert (np.diff(hits.scores) <= 0).all()
        found += ids[:1] == best_ids(arms, query, 1, excluded)[0]
    assert found >= 57


def of(features: np.ndarray, first: int = 0) -> dict[str, tuple[int, np.ndarray]]:
    return {str(first + row): (first + row, each) for row, each in enumerate(features)}


def upsert(index: LiveIndex, arms: dict[str, tuple[int, np.ndarray]]) -> None:
    index.upsert(
        [*arms], np.array([row for _, row in arms.values()]), [number for number, _ in arms.values()]
    )


def test_the_planner_measures_it_and_it_follows_what_comes_and_goes() -> None:
    features = gaussian(ARMS)
    index, arms = filled(features, limits=LIMITS), of(features)
    assert done(index).plan.kind == "flat8"
    status = index.status()
    assert (status.kind, status.exact, status.arms_in_graph, status.fresh) == ("flat8", False, ARMS, 0)
    assert status.recall_at_1 >= 0.95
    assert "times as fast as the plain scan" in status.reason
    check(index, arms, seed=1)

    more = of(gaussian(150, seed=2), ARMS)
    upsert(index, more)
    arms |= more
    assert (index.status().kind, index.status().fresh) == ("flat8", 150)
    check(index, arms, seed=3)

    gone = [str(arm) for arm in range(0, ARMS, 40)]
    index.remove(gone)
    arms = {arm: each for arm, each in arms.items() if arm not in set(gone)}
    assert index.status().kind == "flat8"
    check(index, arms, seed=4)


@pytest.mark.rest
def test_one_that_finds_too_little_does_not_serve() -> None:
    def spoilt(task: Task) -> tuple[Plan, Index | None]:
        return measured(task, FlatIndex(task.table, task.table.live_rows, spoilt=True), build_s=0.0)

    features = gaussian(ARMS)
    index = filled(features, limits=LIMITS)
    with only_structures(Candidate(FlatIndex.kind, spoilt)):
        done(index)
    assert (index.status().kind, index.status().recall_at_1) == ("exact", 1.0)
    assert index.status().reason.startswith("flat8 was tried: ")
    check(index, of(features), seed=9)


@pytest.mark.rest
def test_filters_ask_it_for_arms_that_they_let_in() -> None:
    features = gaussian(ARMS)
    index, arms = filled(features, limits=LIMITS), of(features)
    index.describe([*arms], [((), {"odd": int(arm) % 2 == 1}) for arm in arms])
    done(index)
    view = index.snapshot()
    eligible = eligible_rows(parse({"odd": True}), view.table, view.attributes)
    options = PlanOptions(copy_bytes=0, target_recall=0.95, limits=FilterLimits(quick_numbers=0))
    plan = plan_filter(view, eligible, options, recent=(), rng=np.random.default_rng(1))
    assert plan.index == view.structure.number
    assert plan.recall_at_1 >= 0.95
    search = IndexSearch(eligible, view.structure, plan.ask)
    assert search.kind == "flat8"
    odd = {arm: each for arm, each in arms.items() if int(arm) % 2}
    found = 0
    for query in gaussian(60, seed=10):
        hits = search.search(view, query, 1)
        ids = [] if hits is None else [view.id_of(row) for row in hits.rows.tolist()]
        assert all(int(arm) % 2 for arm in ids)
        found += ids == best_ids(odd, query, 1)[0]
    assert found >= 57


class SavedIndex(FlatIndex):
    """The same, under a kind that answers know, and written for the other processes."""

    kind: ClassVar[Any] = "inverted_file"

    @staticmethod
    def save(index: SavedIndex, to: PublicationWriter) -> Any:
        rows = np.append(to.positions, -1)[index.rows]
        return [rows, index._codes, index._scales], index.degradation.measured

    @staticmethod
    def load(at: PublicationReader) -> Index:
        (rows, codes, scales), quality = at.read(tuple[list[NDArray[Any]], Quality])
        index = object.__new__(SavedIndex)
        Index.__init__(index, at.covered, Degradation(len(rows)))
        index._rows, index._codes, index._scales = rows, codes.reshape(-1, DIM), scales
        index._places = positions_of(rows, at.covered)
        index.degradation.measured = quality
        index.degradation.tombstone(np.flatnonzero(rows < 0))
        return index


@pytest.mark.rest
def test_one_that_says_how_it_is_saved_serves_in_all_processes(tmp_path: Path) -> None:
    def attempt(task: Task) -> tuple[Plan, Index | None]:
        return measured(task, SavedIndex(task.table, task.table.live_rows), build_s=0.0)

    saving = Saving(SavedIndex.save, SavedIndex.load)
    features, indexes = gaussian(ARMS), list[LiveIndex]()
    for is_maker in (True, False):
        shared = SharedArms(tmp_path / "shared", lambda is_maker=is_maker: is_maker)
        index = filled(features, IndexOptions(), limits=LIMITS, shared=shared)
        index.version = 1
        indexes.append(index)
    maker, other = indexes
    with only_structures(Candidate(SavedIndex.kind, attempt, saving)):
        done(maker)
        maker.remove(["7"])
        done(maker, "sharing")
        done(other, "sharing")
    made, adopted = (index.snapshot().structure for index in indexes)
    assert isinstance(made, SavedIndex)
    assert isinstance(adopted, SavedIndex)
    assert adopted is not made
    other.remove(["7"])
    left = {arm: each for arm, each in of(features).items() if arm != "7"}
    for index in indexes:
        assert index.status().kind == "inverted_file"
        check(index, left, seed=11)
    assert indexes[0].status().recall_at_1 == pytest.approx(indexes[1].status().recall_at_1)


@pytest.mark.rest
@pytest.mark.anyio
@pytest.mark.parametrize("is_group", [False, pytest.param(True, marks=pytest.mark.slow)])
async def test_a_catalogue_is_served_by_it_over_http(store_url: str, tmp_path: Path, is_group: bool) -> None:
    """Planned, grown, with deaths and filters. In a group it serves its maker, and this process scans."""
    pauses = replace(PATIENT, index_poll_s=0.005, index_idle_s=0.02)
    arms = {f"a{number}": row for number, row in enumerate(gaussian(ARMS))}
    limits: dict[str, Any] = {"pauses": pauses, "index_limits": LIMITS}
    async with running(store_url, tmp_path, is_group=is_group, **limits) as api:
        api.app.service.filtered.limits = FilterLimits(quick_numbers=0)
        await api.ok("PUT", "/v1/catalogues/c", {"dim": DIM}, 201)
        await put(api, arms)
        await api.bandit("b", "c", exploration=1e-9)
        rng = np.random.default_rng(13)
        taught = [{"id": f"o{n}", "arm": f"a{n}", "value": rng.normal()} for n in range(40)]
        await api.observe("b", *taught)
        theta = np.array((await api.learner("b"))["theta"])

        async def index() -> Any:
            return (await api.ok("GET", "/v1/catalogues/c"))["index"]

        async def serves() -> bool:
            found = await index()
            if is_group:
                shared = api.app.service.catalogues.served("c").index
                return found["kind"] == "exact" and bool(shared.snapshot().table.ids.mapped)
            return bool(found["kind"] == "flat8" and not found["fresh"])

        async def chosen(**body: Any) -> list[str]:
            answer = await api.choose("b", k=3, **body)
            assert answer["exact"] is is_group
            return [arm["id"] for arm in answer["arms"]]

        def best(**among: Any) -> list[str]:
            scores = {arm: float(row @ theta) for arm, row in arms.items() if not among or is_odd(arm)}
            return sorted(scores, key=lambda arm: -scores[arm])[:3]

        await wait_until(serves, what="the arms are searched")
        assert await chosen() == best()
        more = {f"a{ARMS + number}": row for number, row in enumerate(gaussian(100, seed=14))}
        more[f"a{ARMS + 100}"] = 10.0 * theta / np.linalg.norm(theta)
        await put(api, more)
        arms |= more
        assert (await chosen())[0] == f"a{ARMS + 100}"
        for arm in best():
            await api.ok("DELETE", f"/v1/catalogues/c/arms/{arm}", status=204)
            del arms[arm]
        assert await chosen() == best()
        odd = {"odd": True}

        async def planned() -> bool:
            for _ in range(8):
                answer = await api.choose("b", k=3, filter=odd)
                assert [arm["id"] for arm in answer["arms"]] == best(filter=odd)
            (found,) = (await api.ok("GET", "/v1/catalogues/c"))["filters"]
            return bool(found["reason"] != "not measured yet")

        await wait_until(planned, what="the filter is planned")
        (found,) = (await api.ok("GET", "/v1/catalogues/c"))["filters"]
        assert found["recall_at_1"] >= 0.95


def is_odd(arm: str) -> bool:
    return int(arm[1:]) % 2 == 1


async def put(api: Api, arms: dict[str, np.ndarray]) -> None:
    rows = [
        {"id": arm, "features": row.tolist(), "metadata": {"odd": is_odd(arm)}} for arm, row in arms.items()
    ]
    await api.ok("PUT", "/v1/catalogues/c/arms", {"arms": rows})
