"""The environments and policies of tables 1 to 5 against what they say they are."""

from __future__ import annotations

import numpy as np
import pytest

from shortlist.linear import elimination, ridge, ridge_sums
from studies.experiments import movielens, synthetic
from studies.experiments.elimination_policies import LinearElim, SubElim, WidthScan
from studies.experiments.exact_elimination import ExactElim
from studies.experiments.play import CURVE, play
from studies.experiments.synthetic import PERIOD
from studies.experiments.ts_policies import FlatArms, LinearTs, SubTs

pytestmark = pytest.mark.rest


@pytest.mark.parametrize("deletions", [False, True])
@pytest.mark.parametrize("change", [1, 3])
def test_best_is_the_best_of_the_arms_that_are_there(deletions, change):
    game = synthetic.make(120, 400, change=change, deletions=deletions, seed=5)
    there = set(range(game.available(0)))
    for step in range(game.steps):
        gone = set(game.leaving(step).tolist())
        assert gone <= there
        there = (there - gone) | set(range(game.available(max(step - 1, 0)), game.available(step)))
        assert game.best[step] == max(game.means[list(there)])
    assert len(there) == 120 - deletions * change * ((game.steps - 1) // PERIOD)
    assert game.available(game.steps) == 120


def test_films_arrive_until_all_are_there():
    liked, features = np.zeros(50), np.ones((50, 16))
    short = movielens.environment(liked, features, steps=201)
    assert (short.available(0), short.available(200)) == (30, 50)
    long = movielens.environment(liked, features, steps=4_001)
    assert (long.available(0), long.available(4_000)) == (25, 50)
    assert long.regret(3, 7) == 1.0


def test_flat_arms_are_the_arms_that_are_there():
    game = synthetic.make(60, 400, change=2, deletions=True, seed=1)
    flat, there, rng = FlatArms(game), set(range(game.available(0))), np.random.default_rng(2)
    flat.add(np.arange(game.available(0)))
    for step in range(PERIOD, game.steps, PERIOD):
        came = np.arange(game.available(step - 1), game.available(step))
        flat.add(came)
        flat.remove(game.leaving(step))
        there = (there | set(came.tolist())) - set(game.leaving(step).tolist())
        assert set(flat.arms[: flat.count].tolist()) == there
        query = rng.standard_normal(16)
        best = max(there, key=lambda arm: game.arms[arm] @ query)
        assert flat.search(query, 1).rows.tolist() == [best]
        for array in (flat.fastest, flat.printed):
            assert flat.arms[int((array[: flat.count] @ query).argmax())] == best


def test_the_widths_of_the_scan_follow_the_posterior():
    game = synthetic.make(80, 100, change=2, seed=3)
    scan, sums = WidthScan(game.arms), ridge_sums.empty(16)
    posterior = ridge.posterior(sums, ridge=1.0)
    scan.add(np.arange(60), posterior)
    rng = np.random.default_rng(4)
    for _ in range(300):
        arm = int(rng.integers(60))
        sums = ridge_sums.add(sums, game.arms[arm : arm + 1], np.array([1.0]), np.array([True]))
        scan.learned(arm, posterior)
        posterior = ridge.posterior(sums, ridge=1.0)
    wanted = ridge.widths(posterior, game.arms[:60]) ** 2
    assert np.allclose(scan.squares[:60], wanted, rtol=1e-3, atol=1e-4)


def policies(game, seed):
    rules = elimination.rules(radius=3.0, eta=0.02)
    return {
        "linear_ts": LinearTs(game, exploration=1.0),
        "sub_ts": SubTs(game, exploration=1.0, shortlist=30, seed=seed),
        "linear_elim": LinearElim(game, rules),
        "sub_elim": SubElim(game, rules, shortlist=30),
        "exact_elim": ExactElim(game, radius=3.0),
    }


@pytest.mark.parametrize("name", ["linear_ts", "sub_ts", "linear_elim", "sub_elim", "exact_elim"])
def test_a_run_learns_and_says_what_it_took(name):
    game = synthetic.make(300, 1_000, change=2, seed=8)
    run = play(game, policies(game, 8)[name], seed=8)
    assert len(run.curve) == CURVE
    assert run.curve[-1] == round(run.regret, 1)
    assert all(a <= b for a, b in zip(run.curve, run.curve[1:], strict=False))
    at_random = float((game.best - game.means.mean()).sum())
    assert 0 < run.regret < 0.5 * at_random
    assert run.online > 0
    assert min(run.preparing, run.upkeep) >= 0
    assert ("printed" in run.scans) == name.startswith("linear")


def test_a_graph_that_finds_everything_plays_as_the_scan_does():
    game = synthetic.make(300, 600, change=2, deletions=True, seed=9)
    exact, graph = (play(game, policies(game, 9)[name], seed=9) for name in ("linear_ts", "sub_ts"))
    assert graph.curve == exact.curve


def test_the_scan_plays_the_widest_living_arm():
    game = synthetic.make(300, 600, change=2, seed=10)
    rules = elimination.rules(radius=3.0, eta=0.02, few=0)
    policy = LinearElim(game, rules)
    chosen = policy.choose

    def choose(posterior, rng):
        before = policy._state  # private: what the policy knows after each step
        arm = chosen(posterior, rng)
        if policy._state is before and not before.capped:  # private: what the policy knows after each step
            living = before.living.rows()
            spans = ridge.widths(posterior, game.arms[living])
            mine = ridge.widths(posterior, game.arms[[arm]])[0]
            assert mine >= spans.max() * (1 - 1e-3)
            seen.append(arm)
        return arm

    seen: list[int] = []
    policy.choose = choose
    play(game, policy, seed=10)
    assert len(seen) > 100


@pytest.mark.parametrize("arms", [300, 4_000])  # dead arms are taken out at once, or when they are many
def test_exact_elimination_plays_the_most_uncertain_arm_that_brute_force_leaves(arms):
    game = synthetic.make(arms, 400, change=2, seed=11)
    policy, brute = ExactElim(game, radius=3.0), {"threshold": -np.inf, "gone": np.zeros(arms, dtype=bool)}
    chosen, seen = policy.choose, []

    def choose(posterior, rng):
        there = np.arange(game.available(len(seen)))
        spans, means = 3.0 * ridge.widths(posterior, game.arms[there]), game.arms[there] @ posterior.theta
        living = ~brute["gone"][there]
        brute["threshold"] = max(brute["threshold"], (means - spans)[living].max())
        brute["gone"][there[means + spans < brute["threshold"] - 1e-4]] = True
        arm = chosen(posterior, rng)
        assert not brute["gone"][arm]
        assert spans[arm] >= spans[~brute["gone"][there]].max() * (1 - 1e-3)
        seen.append(arm)
        return arm

    policy.choose = choose
    play(game, policy, seed=11)
    assert len(seen) == 400
    assert brute["gone"].sum() > arms / 2
