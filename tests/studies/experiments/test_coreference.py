"""The coreference experiment: its clusters stay a partition, its score is B^3, and races read less."""

from __future__ import annotations

import numpy as np
import pytest

from shortlist.sampling.clusters import Cluster
from studies.experiments import sampling_coreference
from studies.experiments.coreference import Name, b_cubed, exactly, make, printed, racing, sample
from studies.experiments.sampling_coreference import Scale

pytestmark = pytest.mark.rest


def test_b_cubed_by_hand():
    """Clusters {a, b, c}, {d}; authors {a, b}, {c, d}."""
    precision, recall = b_cubed(np.array([5, 5, 5, 9]), np.array([0, 0, 1, 1]))
    assert precision == pytest.approx(2 / 3 + 2 / 3 + 1 / 3 + 1)
    assert recall == pytest.approx(1 + 1 + 1 / 2 + 1 / 2)


def test_a_mention_may_join_every_cluster_of_its_name_or_an_empty_one():
    name = Name(make(30, 4, (1,)))
    rng = np.random.default_rng(0)
    for update in range(200):
        mention = int(rng.integers(30))
        labels, clusters = name.candidates(mention, 0.5)
        sizes = [cluster.size for cluster in clusters]
        assert sum(sizes) == 29
        assert sizes[-1] == 0 < min(sizes[:-1])
        assert len(set(labels)) == len(labels)
        place = int(rng.integers(len(labels)))
        vectors = name.mentions.vectors
        for cluster, label in zip(clusters[:-1], labels, strict=False):
            others = name.members[label]
            expected = (4.0 * (vectors[others] @ vectors[mention]) - 4.0 * 0.25) / 0.5
            assert cluster.log_factors(np.arange(cluster.size)) == pytest.approx(expected), update
        name.put(mention, labels[place])
        assert sorted(np.concatenate(list(name.members.values()))) == list(range(30))
        assert all((name.labels[rows] == label).all() for label, rows in name.members.items())


@pytest.mark.slow
def test_races_choose_as_exact_draws_do_and_read_less():
    names = [make(150, 3, (2,))]
    runs = [sample(names, draw, sweeps=3, every=150, seed=1) for draw in (exactly, racing(1e-6, 10))]
    exact, raced = runs
    assert (exact.scores == raced.scores).all()
    assert raced.wrong == 0.0
    assert (exact.reads == exact.everything).all()
    assert exact.everything[-1] == 3 * 150 * 149
    assert raced.reads[-1] < 0.95 * exact.reads[-1]
    assert exact.scores[-1] > 2 * exact.scores[0]


def test_the_printed_races_read_every_factor_of_few_and_err_after_three_equal_ones():
    """Three factors that are equal have no deviation, so their width is 0."""
    few = [Cluster(3, np.array(values).__getitem__) for values in ([1.0, 2.0, 3.0], [9.0, 0.0, 0.0])]
    for seed in range(20):
        assert printed(0.05)(few, np.random.default_rng(seed)) == exactly(few, np.random.default_rng(seed))
    rare = np.zeros(1_000)
    rare[:50] = 20.0
    clusters = [Cluster(1_000, rare.__getitem__), Cluster(1_000, lambda rows: np.full(len(rows), 0.5))]
    wrong = [printed(0.05)(clusters, np.random.default_rng(seed))[0] for seed in range(100)]
    assert sum(wrong) > 50, "the first cluster has the larger sum"
    safe = [racing(0.05, 200)(clusters, np.random.default_rng(seed))[0] for seed in range(20)]
    assert sum(safe) <= 5


def test_the_command_compares_all_ways(monkeypatch, capsys):
    monkeypatch.setattr(sampling_coreference, "can_draw", lambda: False)
    rows = sampling_coreference.run("figure3-sampling", True, None, Scale(((40, 2), (10, 2)), 2, 2))["rows"]
    ends, looks = rows[:4], rows[4:]
    assert [row["way"] for row in ends] == list(sampling_coreference.WAYS)
    assert ends[0]["read"] == 1.0
    assert all(0.0 < row["read"] <= 1.0 for row in ends)
    assert len(looks) == 4 * (2 * sampling_coreference.LOOKS + 1)
    assert "F-1" in capsys.readouterr().out


def test_an_error_of_a_race_is_counted():
    names = [make(20, 2, (3,))]
    last = sample(names, lambda some, rng: (len(some) - 1, 0), sweeps=1, every=20, seed=0, judge_every=1)
    assert last.wrong > 0.2
    assert last.largest == 1
