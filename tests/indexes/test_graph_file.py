"""Graph files: read back as they were, and refused for any reason at all, without a crash."""

from __future__ import annotations

import stat

import numpy as np
import pytest

from app.indexes.index_limits import IndexLimits
from app.indexes.live import IndexOptions, LiveIndex
from shortlist.index import graph_file
from tests.indexes.brute_force import filled, maintain

pytestmark = pytest.mark.rest

OPTIONS = IndexOptions(kind="hnsw", m=6, ef_construction=20)
ARMS, DIM = 400, 5
QUERIES = np.random.default_rng(9).standard_normal((30, DIM))


@pytest.fixture(scope="module")
def features():
    """Of one length: no arm is too short to be in the graph."""
    drawn = np.random.default_rng(1).standard_normal((ARMS, DIM))
    drawn /= np.linalg.norm(drawn, axis=1)[:, None]
    drawn.flags.writeable = False
    return drawn


@pytest.fixture(scope="module")
def graph_bytes(tmp_path_factory, features):
    """What an index leaves in its file."""
    path = tmp_path_factory.mktemp("graph") / "catalogue.index"
    maintain(filled(features, OPTIONS, cache=path))
    return path.read_bytes()


@pytest.fixture
def path(tmp_path, graph_bytes):
    path = tmp_path / "catalogue.index"
    path.write_bytes(graph_bytes)
    return path


def read(path, index, options=OPTIONS):
    view = index.snapshot().table
    return graph_file.read(path, view, m=options.m, ef_construction=options.ef_construction)


def test_the_same_graph_comes_back_without_building(path, features, monkeypatch):
    built = filled(features, OPTIONS)
    maintain(built)
    monkeypatch.setattr("shortlist.index.hnsw.HnswGraph.build", lambda *a, **k: pytest.fail("built again"))
    loaded = filled(features, OPTIONS, cache=path)
    maintain(loaded)
    assert loaded.status().kind == "hnsw"
    assert loaded.status().arms_in_graph == built.status().arms_in_graph
    graphs = [index.snapshot().structure for index in (built, loaded)]
    for graph in graphs:  # each was measured by itself, on a machine that may be busy
        graph.tuned(100, shortlist=20, most=100)
    for query in QUERIES:
        assert np.array_equal(*(graph.rows[graph.nearest(query, 20)] for graph in graphs))


def test_only_the_owner_can_read_it_and_nothing_else_is_left(tmp_path, features):
    path = tmp_path / "catalogue.index"
    maintain(filled(features, OPTIONS, cache=path))
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert list(path.parent.iterdir()) == [path]


def test_changes_since_it_was_written_are_fresh_and_dead(path, features):
    index = filled(features, OPTIONS, cache=path)
    index.remove(["3", "4"])
    index.upsert(["5", "new"], np.full((2, DIM), 9.0), [1_000, 1_001])
    graph = read(path, index)
    assert graph is not None
    assert (graph.degradation.dead, graph.covered) == (3, ARMS)
    maintain(index)
    found = index.snapshot().search(np.ones(DIM), 30)
    ids = {index.snapshot().id_of(row) for row in found.rows}
    assert {"5", "new"} <= ids
    assert not {"3", "4"} & ids


def test_a_byte_changed_anywhere_refuses_the_file(path, features):
    index = filled(features)
    whole = path.read_bytes()
    rng = np.random.default_rng(4)
    places = {0, 7, 8, 11, 12, 20, 80, len(whole) - 1, len(whole) - 32, len(whole) - 33}
    for place in sorted(places | set(rng.integers(0, len(whole), 150).tolist())):
        changed = bytearray(whole)
        changed[place] ^= 1 << int(rng.integers(8))
        path.write_bytes(changed)
        assert read(path, index) is None, place
    path.write_bytes(whole)
    assert read(path, index) is not None
    assert list(path.parent.iterdir()) == [path]


@pytest.mark.parametrize("keep", [0, 1, 8, 10, 12, 100, 1_000, -33, -32, -1])
def test_a_file_cut_short_is_refused(path, features, keep):
    path.write_bytes(path.read_bytes()[:keep])
    assert read(path, filled(features)) is None


def test_another_dimension_or_shape_is_refused(path, features):
    assert read(path, filled(features[:, :4].copy())) is None
    assert read(path, filled(features), IndexOptions(m=7, ef_construction=20)) is None
    assert read(path, filled(features), IndexOptions(m=6, ef_construction=21)) is None


def test_revisions_that_mean_other_features_are_refused(path, features):
    others = features.copy()
    others[17, 2] *= 1.000001
    assert read(path, filled(others)) is None


def test_a_catalogue_that_moved_on_is_refused(path, features):
    index = filled(features)
    index.remove([str(row) for row in range(ARMS // 4)])
    assert read(path, index) is None


def test_revisions_of_another_catalogue_are_refused(path, features):
    index = LiveIndex(DIM)
    index.upsert([str(row) for row in range(ARMS)], features, range(5_000, 5_000 + ARMS))
    assert read(path, index) is None


def test_an_arm_that_the_graph_should_hold_but_does_not_is_noticed(tmp_path):
    """Arms left out were short when the file was written; a long one among them is not fresh either."""
    rng = np.random.default_rng(0)
    features = rng.standard_normal((3_000, 16)) * np.exp(rng.normal(0.0, 1.0, (3_000, 1)))
    path = tmp_path / "catalogue.index"
    index = filled(features, OPTIONS, cache=path)
    maintain(index)
    graph = index.snapshot().structure
    assert graph.arms < 2_500
    left_out = np.setdiff1d(np.arange(3_000), graph.rows)[0]
    assert read(path, filled(features)) is not None
    features[left_out] *= 1_000.0
    assert read(path, filled(features)) is None


def test_a_graph_of_the_first_arms_alone_serves_them(tmp_path):
    """As after a crash in the middle of an import: it was written before most arms came."""
    # arms go on coming: on a busy machine the time until it is at rest is over before the graph is read
    limits = IndexLimits(at_rest_s=3_600.0)
    rng = np.random.default_rng(0)
    features = rng.standard_normal((6_000, 16)) * np.exp(rng.normal(0.0, 1.0, (6_000, 1)))
    path = tmp_path / "catalogue.index"
    maintain(filled(features[:2_000], OPTIONS, cache=path))
    index = filled(features, OPTIONS, cache=path, limits=limits)
    maintain(index)
    status = index.status()
    assert (status.kind, status.fresh, status.failure) == ("hnsw", 4_000, None)
    assert status.recall_at_1 >= 0.9, "of the arms that it has"
    snapshot = index.snapshot()
    for query in rng.standard_normal((50, 16)):
        found, best = snapshot.search(query, 5), snapshot.search_exact(query, 5)
        fresh = best.rows[best.rows >= 2_000]
        assert np.isin(fresh, found.rows).all()


def test_a_folder_that_cannot_be_written_costs_only_the_cache(tmp_path, features):
    index = filled(features, OPTIONS, cache=tmp_path / "missing" / "catalogue.index")
    maintain(index)
    assert index.status().kind == "hnsw"


def test_what_an_interrupted_write_left_is_swept(path, features):
    left = path.parent / f"{path.name}.abc.part"
    left.write_bytes(b"half")
    LiveIndex(DIM, OPTIONS, cache=path)
    assert list(path.parent.iterdir()) == [path]
