"""Features in blocks, and what they would have found of likes that are held out."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse

from shortlist.embedding import held_out
from shortlist.embedding.blocks import BLOCKS, make_blocks, real_directions

GROUPS, ARMS = 4, 80


def shop(keys=200, seed=0):
    """Keys like arms of their group, the first arms of each more often; a table says half of the groups."""
    rng = np.random.default_rng(seed)
    group = np.arange(ARMS) % GROUPS
    better = np.geomspace(0.8, 0.05, ARMS // GROUPS).repeat(GROUPS)
    chances = np.where(group == (np.arange(keys) % GROUPS)[:, None], better, 0.1 * better)
    liked = sparse.csr_array((rng.random(chances.shape) < chances).astype(np.float32))
    table = np.column_stack((group % 2, rng.standard_normal(ARMS))).astype(float)
    return liked[np.diff(liked.indptr) > 0], table


def test_blocks_stand_side_by_side_at_one_scale():
    liked, table = shop()
    found = make_blocks(liked, table, 3, np.random.default_rng(0), blocks=BLOCKS)
    behaviour, likes = found.vectors[:, :3], found.vectors[:, 3]
    assert np.square(behaviour).sum(axis=1).mean() == pytest.approx(1.0)
    assert np.square(likes).mean() == pytest.approx(1.0)
    assert likes == pytest.approx(likes[0] * np.log1p(found.likes) / np.log1p(found.likes[0]))
    assert found.features.shape == (ARMS, 2 + 3 + 1)
    assert np.array_equal(found.features[:, :2], table)
    expected = found.map.expected(table)
    weights = found.weights[:, None]
    mixed = (weights * found.vectors + found.map.kappa * expected) / (weights + found.map.kappa)
    assert found.features[:, 2:] == pytest.approx(mixed)
    for blocks, width in [(("behaviour",), 3), (("likes",), 1), (("table", "likes"), 3), (("table",), 2)]:
        made = make_blocks(liked, table, 3, np.random.default_rng(0), blocks=blocks)
        assert made.features.shape == (ARMS, width)


def test_behaviour_is_left_out_where_popularity_alone_is_real():
    """Keys that differ by nothing: beside the likes their first direction says nothing new."""
    rng = np.random.default_rng(0)
    alike = sparse.csr_array((rng.random((300, ARMS)) < np.geomspace(0.5, 0.01, ARMS)).astype(np.float32))
    alike = alike[np.diff(alike.indptr) > 0]
    groups, _ = shop()

    def found(liked, blocks):
        return real_directions(liked, 10, np.random.default_rng(0), blocks=blocks)

    assert found(alike, BLOCKS) == found(alike, ("likes",)) == 0
    assert found(alike, ("behaviour", "table")) >= 1
    assert found(groups, BLOCKS) >= GROUPS - 1


def test_an_arm_that_nobody_liked_has_less_of_what_its_fields_say_than_one_that_is_new():
    liked, table = shop()
    dense = liked.toarray()
    dense[:, 40:60] = 0.0
    found = make_blocks(sparse.csr_array(dense), table, 3, np.random.default_rng(0), blocks=BLOCKS)
    new = found.map.mix(table, np.zeros_like(found.vectors), np.zeros(ARMS))  # as one that comes next week
    passed_over, as_new = found.features[40:60, -1], new[40:60, -1]
    assert (passed_over < 0.5 * as_new).all()
    assert (as_new < found.vectors[:, -1].max()).all()


def test_a_comparison_finds_what_a_list_of_each_ranking_has():
    liked, table = shop()
    found = held_out.compare(liked, table, np.random.default_rng(0), blocks=BLOCKS, most_directions=8)
    assert [row.name for row in found.rows] == ["bestsellers", "item-kNN", "EASE", "the table alone", "ours"]
    assert len(found.likes) == liked.shape[0] // held_out.HELD_OUT
    assert found.fitted == liked.shape[0] - len(found.likes)
    assert not found.sampled
    assert np.array_equal(found.hidden, found.likes - found.likes // 2)
    for row in found.rows:
        assert (row.unknown <= found.likes).all()
        assert (row.half <= found.hidden).all()
    popular, knn, ease, alone, ours = found.rows
    assert all(np.array_equal(popular.unknown, row.unknown) for row in (knn, ease))
    # Groups are what matters: 1.25 times as many in this draw, by all who know them.
    assert min(row.half.sum() for row in (knn, ease, ours)) > 1.15 * popular.half.sum()
    assert ours.unknown.sum() > 0.95 * popular.unknown.sum()
    assert alone.unknown.sum() < 0.8 * popular.unknown.sum()


def test_many_small_groups_have_more_directions_than_are_real_of_each():
    """Keys like a quarter of three of 75 groups of eight arms."""
    rng = np.random.default_rng(0)
    chances = np.full((300, 75), 0.003)
    np.put_along_axis(chances, rng.random(chances.shape).argpartition(3, axis=1)[:, :3], 0.25, axis=1)
    liked = sparse.csr_array((rng.random((300, 600)) < chances.repeat(8, axis=1)).astype(np.float32))
    liked = liked[np.diff(liked.indptr) > 0]
    assert real_directions(liked, 100, np.random.default_rng(0), blocks=BLOCKS) == 0
    table = rng.standard_normal((600, 1))
    found = held_out.compare(liked, table, np.random.default_rng(0), blocks=BLOCKS, most_directions=100)
    assert found.directions == 100
    found = held_out.compare(*shop(), np.random.default_rng(0), blocks=BLOCKS, most_directions=20)
    assert GROUPS - 1 <= found.directions < 20, "few groups have what is real"


def test_keys_that_are_held_out_have_no_part_in_what_is_fitted():
    """Each key likes two arms that nobody else likes: lists of what others like have none of them."""
    likes = np.zeros((30, 60), dtype=np.float32)
    likes[np.arange(30), 2 * np.arange(30)] = likes[np.arange(30), 2 * np.arange(30) + 1] = 1.0
    table = np.random.default_rng(0).standard_normal((60, 1))
    found = held_out.compare(
        sparse.csr_array(likes), table, np.random.default_rng(0), blocks=BLOCKS, most_directions=4
    )
    for row in found.rows[:3]:
        assert row.unknown.sum() == row.half.sum() == 0.0
