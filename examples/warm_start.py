"""What a pooled prior is worth to users who are new: regret of their first rounds, against the plain prior.

    python -m examples.warm_start --data DIR [--splits 20] [--no-repeats] [--strength 0.3 1 3]

Users of MovieLens who are held back come one after the other and play 20 rounds each: a simulation without
the service, by its own algorithms. Every split holds back others; all priors see the same users and draws.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from examples import movielens
from examples.environments import Environment, Rows
from shortlist.linear import linear_ts, ridge, ridge_sums
from shortlist.linear.pooled_prior import with_pooled_prior
from shortlist.linear.sum_algebra import plus
from shortlist_client.files.progress import progress

ROUNDS = 20
PLAIN = 0.0


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the comparison; the exit status says whether it went well."""
    parsed = _parser().parse_args(arguments)
    strengths = [PLAIN, *parsed.strength]
    means = []
    try:
        ratings = movielens.read(parsed.data)
        for seed in progress(range(1, parsed.splits + 1), "splits"):
            held, _, known = movielens.split(ratings, parsed.users, seed=seed)
            game = movielens.liked_films(ratings, held, known, rounds=ROUNDS, seed=seed)
            means.append([mean_regret(game, s, repeats=not parsed.no_repeats, seed=seed) for s in strengths])
    except (OSError, ValueError) as error:
        print(f"warm_start: {error}", file=sys.stderr)
        return 1
    _report(parsed, strengths, np.array(means))
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m examples.warm_start")
    parser.add_argument("--data", type=Path, required=True, help="a MovieLens directory")
    parser.add_argument("--users", type=int, default=100, help="users held back in each split")
    parser.add_argument("--splits", type=int, default=20, help="how often others are held back")
    parser.add_argument("--strength", type=float, nargs="+", default=[0.3, 1.0, 3.0, 10.0])
    parser.add_argument("--no-repeats", action="store_true", help="recommend no film twice to a user")
    return parser


def mean_regret(game: Environment, strength: float, *, repeats: bool, seed: int) -> float:
    """Mean over users, in the order in which they come; what each one taught is there for the next."""
    pool = ridge_sums.empty(game.features.shape[1])
    regrets = []
    for learner in np.random.default_rng(seed).permutation(len(game.learners)):
        rng = np.random.default_rng((seed, int(learner)))
        own, regret = _play(game, int(learner), pool, strength, repeats=repeats, rng=rng)
        pool = plus(pool, own)
        regrets.append(regret)
    return float(np.mean(regrets))


def _play(
    game: Environment,
    learner: int,
    others: ridge_sums.RidgeSums,
    strength: float,
    *,
    repeats: bool,
    rng: np.random.Generator,
) -> tuple[ridge_sums.RidgeSums, float]:
    arms = game.features[: game.present[0]]
    own, taken = ridge_sums.empty(arms.shape[1]), list[int]()
    for _ in range(ROUNDS):
        sums = with_pooled_prior(own, others, strength=strength) if strength else own
        posterior = ridge.posterior(sums, ridge=movielens.RIDGE)
        exclude: Rows = np.array([] if repeats else sorted(taken), dtype=np.int64)
        found = linear_ts.choose(
            posterior, arms, k=1, exploration=movielens.EXPLORATION, rng=rng, exclude=exclude
        ).rows
        taken.append(int(found[0]))
        own = ridge_sums.add(own, arms[found], game.means[learner, found], np.array([True]))
    return own, float(ROUNDS - game.means[learner, taken].sum())


def _report(parsed: argparse.Namespace, strengths: Sequence[float], means: np.ndarray) -> None:
    repeats = "no film twice" if parsed.no_repeats else "repeats allowed"
    print(f"regret of the first {ROUNDS} rounds, {parsed.users} users in turn, {repeats}")
    print(f"mean of {len(means)} splits, and gain over the plain prior with its standard error")
    gains = means[:, :1] - means
    errors = (
        gains.std(axis=0, ddof=1) / np.sqrt(len(means)) if len(means) > 1 else np.full(len(strengths), np.nan)
    )
    for column, strength in enumerate(strengths):
        name = f"pooled, {strength:g}" if strength else "plain"
        gain = gains[:, column].mean()
        print(f"  {name:12} {means[:, column].mean():6.2f}   {gain:+.2f} +- {errors[column]:.2f}")


if __name__ == "__main__":
    sys.exit(main())
