"""The battery: every algorithm, held to the same rules.

A case says how to run one row of ``algorithms`` on plain arms, and which behaviour it documents.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from scipy.sparse import csr_array

from algorithm_table import ALGORITHMS, BY_NAME
from shortlist.errors import InvalidArgument, NonFinite
from shortlist.kcenter.ask_tell import ask, tell
from shortlist.kcenter.coordinates import blocked
from shortlist.linear import elimination, ridge, ridge_sums
from shortlist.linear.most_uncertain_arm import Watched
from shortlist.mips.blocked import build
from shortlist.mips.exact import exact
from shortlist.mips.rewards import blocked_rewards
from shortlist.sampling.factors import Factors
from shortlist.slates import ask_tell
from shortlist.types import NO_ROWS

ROOT = Path(__file__).parent.parent.parent
DIM, ARMS = 4, 30


class Scan:
    def __init__(self, features):
        self.features = features

    def search(self, query, k, exclude=NO_ROWS):
        return exact(self.features, query, k=k, exclude=exclude)


def posterior(dim):
    rng = np.random.default_rng(8)
    sums = ridge_sums.add(
        ridge_sums.empty(dim), rng.standard_normal((9, dim)), rng.standard_normal(9), np.ones(9, dtype=bool)
    )
    return ridge.posterior(sums, ridge=1.0)


def thompson(arms_to_argument):
    def run(algorithm, arms, k, seed):
        rng = np.random.default_rng(seed)
        found = algorithm.run(posterior(DIM), arms_to_argument(arms), k=k, exploration=1.0, rng=rng)
        return found.rows

    return run


def linear_elimination(algorithm, arms, k, _seed):
    return algorithm.run(posterior(DIM), arms, k=k, radius=2.0).rows


def boltzmann(algorithm, arms, k, seed):
    """The scores are the sums of the features."""
    return algorithm.run(arms.sum(axis=1), k=k, temperature=1.0, rng=np.random.default_rng(seed)).places


def inverse_gap(algorithm, arms, k, seed):
    return algorithm.run(arms.sum(axis=1), k=k, gamma=5.0, rng=np.random.default_rng(seed)).places


def greedy(algorithm, arms, k, seed):
    return algorithm.run(arms.sum(axis=1), k=k, epsilon=0.3, rng=np.random.default_rng(seed)).places


def upper_bounds(algorithm, arms, k, _seed):
    return algorithm.run(posterior(DIM), arms, k=k, alpha=1.0).rows


def staged_elimination(algorithm, arms, k, seed):
    """With a radius this large every arm lives."""
    known, rng = posterior(DIM), np.random.default_rng(seed)
    rules = elimination.rules(radius=20.0, eta=0.01)
    state = elimination.start(known, np.arange(len(arms)), arms.__getitem__, rules)
    return algorithm.run(state, known, arms.__getitem__, Watched(), k=k, rng=rng)[1].rows


def search(algorithm, arms, k, seed):
    return algorithm.run(arms, np.random.default_rng(seed).standard_normal(DIM), k=k).rows


def sampled_search(algorithm, arms, k, seed):
    """The coordinates are repeated, so that there are enough of them to sample; no arms have no layout."""
    if not len(arms):
        return []
    rng = np.random.default_rng(seed)
    query = np.tile(rng.standard_normal(DIM), 250)
    rewards = blocked_rewards(build(np.tile(arms, 250), rng=rng), query)
    return algorithm.run(rewards, k=k, epsilon=1e-3, delta=0.01).rows


def adaptive_search(algorithm, arms, k, seed):
    """With a last coordinate that makes every product positive, as the ladder leaves out the others."""
    query = np.append(np.random.default_rng(seed).standard_normal(DIM), 40.0)
    joint = np.column_stack((arms, np.ones(len(arms))))
    return algorithm.run(joint, query, k=k, eta=1e-9).rows


def centers(algorithm, arms, k, seed):
    rng = np.random.default_rng(seed)
    return algorithm.run(arms, k=k, first=outermost(arms), rng=rng).centers


def sampled_centers(algorithm, arms, k, seed):
    """The coordinates are repeated, so that there are enough of them to sample."""
    rng = np.random.default_rng(seed)
    coordinates = blocked(np.tile(arms, 250), rng=rng)
    return algorithm.run(coordinates, k=k, delta=0.01, first=outermost(arms), rng=rng).centers


def asked_centers(algorithm, arms, k, seed):
    """Distances are answered with hardly any noise."""
    rng = np.random.default_rng(seed)
    state = algorithm.run(n=len(arms), k=k, delta=0.01, rng=rng, first=outermost(arms), noise_std=1e-3)
    while not state.done:
        state, queries = ask(state, 100, rng=rng)
        distances = [float(np.square(arms[u] - arms[v]).mean()) for u, v in (q.pair for q in queries)]
        noisy = distances + 1e-3 * rng.standard_normal(len(queries))
        state = tell(state, [(query.number, value) for query, value in zip(queries, noisy, strict=True)])
    return state.centers


def draws(**options):
    """Independent draws; the factors of an arm are its features, repeated so that they can be raced."""

    def run(algorithm, arms, k, seed):
        given = {name: value(arms) for name, value in options.items()}
        factors = Factors.of(np.tile(arms / 100.0, 250))
        return algorithm.run(factors, draws=k, rng=np.random.default_rng(seed), **given).rows

    return run


def ranges(arms):
    return (arms.max(axis=1) - arms.min(axis=1)) / 100.0 if arms.size else np.zeros(len(arms))


def a_tenth(arms):
    return 0.1


def outermost(arms):
    return int(arms[:, 0].argmax()) if len(arms) else None


def slate(algorithm, arms, k, seed):
    """The means are the first column; totals have no noise, so the k best must be found."""
    if not np.isfinite(arms).all():
        raise NonFinite("arms must be finite", argument="arms")
    options = {"epsilon": 1e-3, "delta": 0.1, "noise_std": 1e-4, "reach": None, "seed": seed, "matroid": None}
    state = algorithm.run(n=len(arms), k=k, allocation="uniform", bound="certified", **options)
    while not state.done:
        state, pulls = ask_tell.ask(state, 50)
        state = ask_tell.tell(state, [(p.number, float(arms[list(p.slate), 0].sum())) for p in pulls])
    return by_first_column(arms, state.report.best)


def dense(algorithm, arms, k, seed):
    return by_first_column(arms, algorithm.run(arms @ arms.T + np.eye(len(arms)), k))


def by_first_column(arms, rows):
    return rows[np.argsort(-arms[rows, 0])]


def longest(algorithm, arms, k, seed):
    """The features are values that keys gave: the arms with the longest embeddings of k numbers."""
    found = algorithm.run(csr_array(arms.T.astype(np.float32)), k, np.random.default_rng(seed))
    return np.argsort(-np.linalg.norm(found.vectors, axis=1))[:k]


@dataclass(frozen=True)
class Case:
    """``run(algorithm, arms (n, DIM), k, seed)`` returns the chosen rows.

    ``follows_arms``: permuting the arms permutes the answer. ``fewer``: with k > n it returns n rows, else it
    raises; an empty set of arms likewise. ``repeats``: k independent draws, of any arms there are.
    """

    run: Callable
    follows_arms: bool = True
    fewer: bool = True
    repeats: bool = False


CASES = {
    ("policy", "linear_ts"): Case(thompson(lambda arms: arms)),
    ("policy", "sub_ts"): Case(thompson(Scan)),
    ("policy", "sub_elim"): Case(staged_elimination),
    ("policy", "linear_elim"): Case(linear_elimination),
    ("policy", "softmax"): Case(boltzmann, follows_arms=False),
    ("policy", "igw"): Case(inverse_gap, follows_arms=False),
    ("policy", "epsilon_greedy"): Case(greedy, follows_arms=False),
    ("policy", "linucb"): Case(upper_bounds),
    ("mips", "exact"): Case(search),
    ("mips", "adaptive"): Case(adaptive_search),
    ("sampling", "exact"): Case(draws(), follows_arms=False, repeats=True),
    ("sampling", "lil_ucb"): Case(draws(delta=a_tenth, ranges=ranges), follows_arms=False, repeats=True),
    ("sampling", "racing_ebs"): Case(draws(delta=a_tenth, ranges=ranges), follows_arms=False, repeats=True),
    ("sampling", "racing_normal"): Case(draws(delta=a_tenth), follows_arms=False, repeats=True),
    ("mips", "bounded_me"): Case(sampled_search),
    ("mips", "racing"): Case(sampled_search),
    ("slates", "exhaustive"): Case(slate, fewer=False),
    ("slates", "icb"): Case(slate, fewer=False),
    ("slates", "saqm"): Case(slate, fewer=False),
    ("slates", "sa_foa"): Case(slate, fewer=False),
    ("slates", "densest_k_subgraph"): Case(dense, fewer=False),
    ("kcenter", "naive"): Case(centers, fewer=False),
    ("kcenter", "random"): Case(sampled_centers, fewer=False),
    ("kcenter", "ds_ucb"): Case(sampled_centers, fewer=False),
    ("kcenter", "ds_ts"): Case(sampled_centers, fewer=False),
    ("kcenter", "ns_ts"): Case(asked_centers, fewer=False),
    ("kcenter", "ns_ucb"): Case(asked_centers, fewer=False),
    ("kcenter", "ns_tands"): Case(asked_centers, fewer=False),
    ("embedding", "behaviour"): Case(longest, fewer=False),
}
KEYS = sorted(CASES)


def arms(rows=ARMS):
    return np.random.default_rng(4).standard_normal((rows, DIM))


def run(key, features, k=3, seed=11):
    return np.asarray(CASES[key].run(BY_NAME[key], features, k, seed)).tolist()


def test_every_row_has_a_case_and_a_name_of_its_own():
    assert sorted(BY_NAME) == KEYS
    assert len(BY_NAME) == len(ALGORITHMS)


@pytest.mark.parametrize("row", ALGORITHMS, ids=lambda row: f"{row.problem}-{row.name}")
def test_the_paper_of_the_row_has_a_page_and_its_function_a_docstring(row):
    surname = row.paper.split()[0]
    opening = [page.read_text().split("\n\n")[1] for page in (ROOT / "docs" / "papers").glob("*.md")]
    assert len([text for text in opening if text.startswith(surname)]) == 1
    assert row.run.__doc__


@pytest.mark.parametrize("key", KEYS)
def test_the_same_seed_gives_the_same_answer_and_arms_are_not_written(key):
    first = run(key, arms())
    assert len(first) == 3
    assert CASES[key].repeats or len(set(first)) == 3
    features = arms()
    features.setflags(write=False)
    assert run(key, features) == first


@pytest.mark.parametrize("key", [key for key in KEYS if CASES[key].follows_arms])
def test_arms_in_another_order_are_the_same_arms(key):
    features = arms()
    order = np.random.default_rng(5).permutation(ARMS)
    assert order[run(key, features[order])].tolist() == run(key, features)


@pytest.mark.parametrize("key", KEYS)
def test_a_value_that_is_not_finite_is_named(key):
    for bad in [np.nan, np.inf, -np.inf]:
        features = arms()
        features[7, 2] = bad
        with pytest.raises(InvalidArgument) as raised:
            run(key, features)
        assert raised.value.argument


@pytest.mark.parametrize("key", KEYS)
def test_more_arms_asked_for_than_there_are(key):
    for rows in [0, 1, 2]:
        if CASES[key].repeats and rows:
            assert set(run(key, arms(rows))) <= set(range(rows))
        elif CASES[key].fewer and not CASES[key].repeats:
            assert sorted(run(key, arms(rows))) == list(range(rows))
        else:
            with pytest.raises(InvalidArgument):
                run(key, arms(rows))


@pytest.mark.parametrize("key", KEYS)
def test_no_arm_asked_for_is_refused(key):
    for k in [0, -1]:
        with pytest.raises(InvalidArgument) as raised:
            run(key, arms(), k=k)
        assert raised.value.argument
