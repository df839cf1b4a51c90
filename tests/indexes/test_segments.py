"""Segments: what they find, when they are joined, and one that is made while other work ends."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.indexes.limits import IndexLimits
from app.indexes.live import IndexOptions
from shortlist.index.exact import scan
from shortlist.index.inverted_file import Centroids, InvertedFile
from shortlist.index.norm_pruned import NormBlocks
from shortlist.index.probes import ExactLists, Quality, make_queries, solve
from shortlist.index.quality import EXACT
from shortlist.index.segments import Segment, SegmentBuild, fitting, joined
from tests.indexes.brute_force import filled, limit, maintain, measure_anew

DIM = 8
QUERIES = 1_000
TARGET = 0.95


def gaussian(count, dim=DIM, seed=0):
    return np.random.default_rng(seed).standard_normal((count, dim))


def file_of(features, *, first=0, target=TARGET):
    """An inverted file over the rows from ``first`` on that reads lists, and its table."""
    table = filled(features, IndexOptions(kind="exact")).snapshot().table
    rows, rng = np.arange(first, len(features)), np.random.default_rng(1)
    centroids = Centroids.trained(table, rows, rng)
    labels = centroids.nearest(table.working[rows])
    file = InvertedFile(table, centroids, rows, labels, first=first, check=lambda: None)
    queries, _ = make_queries(table.dim, 256, (), rng)
    # private: with queries that the test knows
    file.probed = file._least_probed(queries, solve(table, queries, first=first).winners, target)
    return file, table


def recall_of(file, table, *, first=0):
    queries, _ = make_queries(table.dim, QUERIES, (), np.random.default_rng(2))
    probes = solve(table, queries, first=first)
    found = [file.search(table, query, 1).rows for query in queries]
    return np.mean(
        [len(rows) and rows[0] == winner for rows, winner in zip(found, probes.winners, strict=True)]
    )


@pytest.mark.rest
@pytest.mark.parametrize("dim", [4, 24])
def test_as_many_lists_are_read_as_the_target_asks_for(dim):
    """Recall on other queries than the probes. False alarm: below 1e-4, by five standard errors of both."""
    file, table = file_of(gaussian(20_000, dim), first=5_000)
    error = math.sqrt(TARGET * (1.0 - TARGET) * (1.0 / QUERIES + 1.0 / 256))
    assert file.probed < len(file.centroids) / 2
    assert recall_of(file, table, first=5_000) >= TARGET - 5.0 * error


@pytest.mark.rest
@pytest.mark.parametrize("share", [0.5, 0.25])
def test_fewer_lists_would_not_do(share):
    """The test above notices half of the lists."""
    file, table = file_of(gaussian(20_000))
    enough, file.probed = recall_of(file, table), max(1, int(share * file.probed))
    assert recall_of(file, table) < enough - 0.03


@pytest.mark.parametrize("share", [0.0, 0.9, 0.995])
def test_arms_of_a_segment_that_are_too_short_to_win_are_not_told_as_missed(share):
    """Of most probes the best of all rows is one that the segment leaves out."""
    table = filled(gaussian(2_000), IndexOptions(kind="exact")).snapshot().table
    cut = float(np.quantile(table.norms, share))
    build = SegmentBuild(
        table=table, structure=None, joined=(), last=None, first=0, cut=cut, target=TARGET, seed=1, recent=()
    )
    build.run()
    assert build.segment is not None
    measured = build.segment.structure.degradation.measured
    assert min(measured.recall_at_1, measured.recall_at_10, measured.recall_at_100) >= TARGET - 0.01


def test_a_segment_that_reads_all_its_rows_since_most_have_died_is_told_as_exact():
    """Its probes say nothing then. Before that they count what died as missed."""
    index = filled(gaussian(2_000), IndexOptions(kind="exact"))
    file, table = file_of(gaussian(2_000))
    queries, groups = make_queries(table.dim, 256, (), np.random.default_rng(3))
    probes = solve(table, queries, groups=groups)
    lists = ExactLists.of(table, queries[:40], groups[:40])
    file.answered(Quality(0.95, 1.0, 1.0, 0.01), probes, lists)
    segment = Segment(file, 0, 0.0, 1.0)
    assert segment.quality.recall_at_1 == 0.95
    gone = np.unique(probes.winners)
    file.tombstone(gone[:10])
    assert 0.0 < segment.quality.recall_at_1 < 0.95
    file.tombstone(gone)
    index.remove([str(row) for row in gone])
    left = index.snapshot().table
    assert segment.quality == EXACT
    for query in queries[:50]:
        assert file.search(left, query, 5).rows.tolist() == scan(left, query, 5).rows.tolist()


@pytest.mark.rest
def test_centroids_are_where_lloyds_algorithm_puts_them():
    """Each row is in the list of the centroid that is nearest by the slow and obvious way."""
    file, table = file_of(gaussian(3_000))
    distances = np.linalg.norm(table.features[file.rows][:, None] - file.centroids.points, axis=2)
    chosen = distances[np.arange(file.arms), file.labels]
    assert (chosen <= distances.min(axis=1) + 1e-5).all()
    assert file.starts[0] == 0
    assert file.starts[-1] == file.arms
    trained = float((chosen**2).mean())
    drawn = table.features[np.random.default_rng(0).choice(3_000, len(file.centroids), replace=False)]
    untrained = np.linalg.norm(table.features[:, None] - drawn, axis=2).min(axis=1)
    assert trained < 0.9 * float((untrained**2).mean())


@pytest.mark.rest
@given(
    dead=st.sets(st.integers(0, 199)), k=st.integers(1, 20), excluded=st.sets(st.integers(0, 199), max_size=9)
)
def test_reading_all_lists_is_a_scan_of_what_is_alive(dead, k, excluded):
    index = filled(gaussian(200, 3), IndexOptions(kind="exact"))
    table, rows = index.snapshot().table, np.arange(50, 200)
    centroids = Centroids.trained(table, rows, np.random.default_rng(0))
    labels = centroids.nearest(table.working[rows])
    file = InvertedFile(table, centroids, rows, labels, first=50, check=lambda: None)
    index.remove([str(row) for row in dead])
    file.tombstone(np.array(sorted(dead), dtype=np.int64))
    table, exclude = index.snapshot().table, np.array(sorted(excluded), dtype=np.int64)
    left = [row for row in range(50, 200) if row not in dead | excluded]
    query = np.random.default_rng(k).standard_normal(3)
    wanted = sorted(left, key=lambda row: -float(table.features[row] @ query))[:k]
    for file.probed in (None, len(centroids)):
        assert file.search(table, query, k, exclude).rows.tolist() == wanted


@given(st.lists(st.integers(1, 50_000), max_size=60))
def test_segments_are_few_and_a_row_is_moved_a_few_times(arrivals):
    sizes, moved, total = [], 0, 0
    for fresh in arrivals:
        together = joined([_Sized(size, sum(sizes[:place])) for place, size in enumerate(sizes)], fresh)
        kept = len(sizes) - len(together)
        sizes = [*sizes[:kept], sum(sizes[kept:]) + fresh]
        moved, total = moved + sizes[-1], total + fresh
        assert sum(sizes) == total
    assert all(one > 4 * other for one, other in pairwise(sizes))
    if arrivals:
        assert len(sizes) <= 1 + math.log(total / min(arrivals), 4)


class _Sized:
    def __init__(self, size, first):
        self.first, self.covered = first, first + size


EAGER = IndexLimits(least_fresh=1, fresh_share=0.0, rest=0.0)


HNSW = IndexOptions(kind="hnsw", m=8, ef_construction=40)


def grown(count=3_000, more=1_000):
    """An index with a graph over ``count`` arms, and a segment of ``more``."""
    features = gaussian(count + more)
    index = filled(features[:count], HNSW, limits=EAGER)
    maintain(index)
    add(index, features, count)
    return index, features


def add(index, features, first):
    ids = [str(row) for row in range(first, len(features))]
    index.upsert(ids, features[first:], range(first, len(features)))


def shortest(features, count):
    """Arms whose deaths leave the answers as they were."""
    return np.argsort(np.linalg.norm(features, axis=1))[:count]


def segment(index):
    job = index.begin_segment()
    job.run()
    index.finish(job)


def recall(index, features):
    snapshot, queries = index.snapshot(), gaussian(400, features.shape[1], seed=9)
    best = [str(row) for row in (queries @ features.T).argmax(axis=1)]
    return np.mean(
        [snapshot.id_of(snapshot.search(q, 1).rows[0]) == b for q, b in zip(queries, best, strict=True)]
    )


@pytest.mark.rest
def test_what_came_since_is_found_in_its_segment():
    index, features = grown()
    segment(index)
    status = index.status()
    assert (status.kind, status.segments, status.fresh) == ("hnsw", 1, 0)
    assert recall(index, features) >= 0.9
    assert status.recall_at_1 <= index.content.plan.recall_at_1


def test_arms_that_die_while_a_segment_is_made_are_counted():
    def told(*, meanwhile):
        index, features = grown()
        job = index.begin_segment()
        job.run()
        fresh = np.arange(job.first, len(features))
        longest = fresh[np.argsort(-np.linalg.norm(features[fresh], axis=1))[:30]]
        if meanwhile:
            index.remove([str(row) for row in longest])
        index.finish(job)
        (made,) = index.content.segments
        before = made.structure.degradation.quality.recall_at_1
        if not meanwhile:
            index.remove([str(row) for row in longest])
        return before, made.structure.degradation.quality.recall_at_1

    (before, after), (_, counted) = told(meanwhile=False), told(meanwhile=True)
    assert counted == after < before


@pytest.mark.rest
def test_before_there_is_a_graph_a_growing_catalogue_is_served_by_an_inverted_file():
    features = gaussian(4_000)
    index = filled(features, HNSW, limits=IndexLimits(small_numbers=1))
    index.begin_maintenance()  # which takes its time
    segment(index)
    assert (index.status().kind, index.status().segments) == ("inverted_file", 1)
    assert not index.snapshot().search(features[0], 1).exact
    assert recall(index, features) >= 0.9


@pytest.mark.rest
def test_a_segment_made_while_a_graph_is_built_serves_beside_it_until_most_of_it_is_covered():
    index, features = grown(3_000, 1_000)
    segment(index)
    add(index, np.concatenate((features, gaussian(1_500, seed=5))), 4_000)
    features = np.concatenate((features, gaussian(1_500, seed=5)))
    job = index.begin_maintenance()
    more = np.concatenate((features, gaussian(200, seed=6)))
    add(index, more, len(features))
    segment(index)  # joined with the one before, which the graph will have
    job.run()
    index.finish(job)
    assert index.status().arms_in_graph <= len(features)
    assert recall(index, more) >= 0.9
    found = index.snapshot().search(np.ones(DIM), 50)
    assert len(set(found.rows.tolist())) == 50
    segment(index)  # what the graph has is dropped
    assert [each.first for each in index.content.segments] == [len(features)]
    assert index.status().fresh == 0


def test_arms_of_a_segment_that_a_graph_has_in_part_stay_in_their_lists():
    index, features = grown(3_000, 1_500)
    job = index.begin_maintenance()
    features = np.concatenate((features, gaussian(1_000, seed=5)))
    add(index, features, 4_500)
    segment(index)
    job.run()
    index.finish(job)
    made = index.begin_segment()
    assert (made.first, [each.first for each in made.joined]) == (4_500, [3_000])
    made.run()
    file = made.segment.structure
    np.testing.assert_array_equal(file.labels, file.centroids.nearest(features[file.rows].astype(np.float32)))


def test_arms_of_exactly_the_norm_that_can_win_are_in_a_segment():
    """Some are a little longer, and most much shorter. The others differ in signs alone."""
    rng = np.random.default_rng(0)
    features = rng.standard_normal(16) * rng.choice([-1.0, 1.0], (5_000, 16))
    features[rng.random(5_000) < 0.6] *= 0.25
    features[:400] *= 1.1
    index = filled(features[:4_000], HNSW, limits=EAGER)
    maintain(index)
    add(index, features, 4_000)
    segment(index)
    assert index.status().fresh == 0
    assert recall(index, features) >= 0.9


def test_a_segment_of_rows_that_a_compaction_numbered_anew_is_not_served():
    index, features = grown()
    limit(index, least_dead=10)
    made = index.begin_segment()
    made.run()
    index.remove([str(row) for row in shortest(features, 1_500)])
    job = index.begin_maintenance()
    assert job.compaction
    job.run()
    index.finish(job)
    index.finish(made)
    assert index.status().segments == 0
    segment(index)
    assert index.status().segments == 1


def test_a_compaction_takes_the_segments_with_it():
    index, features = grown()
    limit(index, least_dead=10)
    segment(index)
    dead = shortest(features, 1_100)
    index.remove([str(row) for row in dead])
    job = index.begin_maintenance()
    assert job.compaction
    job.run()
    index.finish(job)
    assert (index.status().segments, index.status().fresh) == (1, 0)
    alive = features.copy()
    alive[dead] = 0.0
    assert recall(index, alive) >= 0.9
    add(index, np.concatenate((features, gaussian(1_000, seed=5))), len(features))
    assert index.begin_segment().first == 3_000 - np.count_nonzero(dead < 3_000), "that one is joined whole"


@pytest.mark.rest
def test_after_many_deaths_a_segment_is_made_anew_with_shorter_arms():
    """Arms that were too short to win may win now."""
    features = gaussian(8_000, 4)
    index = filled(features[:6_000], HNSW, limits=EAGER)
    maintain(index)
    add(index, features, 6_000)
    segment(index)
    cut = index.content.segments[0].cut
    assert cut > 0.0
    longest = np.argsort(-np.linalg.norm(features[:6_000], axis=1))[:200]
    index.remove([str(row) for row in longest])
    assert index.content.structure.degradation.missing
    assert index.snapshot().kind == "exact", "most winners died, and nobody knows what the graph finds"
    measure_anew(index)
    assert (index.snapshot().segments, index.status().fresh) == ((), 2_000)
    segment(index)
    assert 0.0 < index.content.segments[0].cut < cut
    assert index.status().fresh == 0
    features[longest] = 0.0
    assert recall(index, features) >= 0.9


@pytest.mark.rest
def test_exact_indexes_have_exact_segments():
    rng = np.random.default_rng(0)
    features = gaussian(40_000, 16) * np.exp(2.0 * rng.standard_normal((40_000, 1)))
    index = filled(features[:36_000], limits=EAGER)
    maintain(index)
    assert (index.status().kind, index.status().exact) == ("norm_pruned", True)
    add(index, features, 36_000)
    segment(index)
    assert isinstance(index.content.segments[0].structure, NormBlocks)
    found = index.snapshot().search(np.ones(16), 5)
    assert found.exact
    assert found.rows.tolist() == np.argsort(-(features @ np.ones(16)), kind="stable")[:5].tolist()


def test_segments_serve_beside_a_structure_if_they_have_later_rows_and_are_exact_if_it_is():
    """With one that may miss an arm, no answer of an exact index would be exact."""
    file, table = file_of(gaussian(3_000), first=2_000)
    blocks = NormBlocks(table, np.arange(2_000, 3_000))
    inexact, exact = (Segment(each, 2_000, 0.0, 0.1) for each in (file, blocks))
    for structure, expected in (
        (None, (inexact, exact)),
        (NormBlocks(table, np.arange(2_999), covered=2_999), (exact,)),
        (NormBlocks(table, np.arange(3_000), covered=3_000), ()),
        (file, ()),
        (file_of(gaussian(2_500))[0], (inexact, exact)),
    ):
        assert fitting((inexact, exact), structure) == expected


@pytest.mark.rest
def test_arms_beyond_the_range_of_float32_are_scanned_beside_a_segment():
    index, features = grown()
    segment(index)
    file = index.content.segments[0].structure
    file.probed = len(file.centroids)
    longer = np.concatenate((features, np.full((1, DIM), 2.0**70)))
    add(index, longer, len(features))
    assert index.begin_segment() is None
    assert index.status().segments == 1
    assert index.snapshot().search(np.ones(DIM), 1).rows.tolist() == [len(features)]
    best = np.argsort(-(features @ -np.ones(DIM)))[:1]
    assert index.snapshot().search(-np.ones(DIM), 1).rows.tolist() == best.tolist()


@pytest.mark.rest
def test_a_segment_without_living_arms_costs_nothing():
    index, _ = grown()
    index.remove([str(row) for row in range(3_000, 4_000)])
    segment(index)
    assert [each.scan_rows for each in index.content.segments] == [0.0]
    assert index.snapshot().search(np.ones(DIM), 3).rows.max() < 3_000
