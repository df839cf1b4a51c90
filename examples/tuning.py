"""Where ``movielens.TUNED`` comes from: a simulation without the service.

    python -m examples.tuning --data DIR

Plays the game of the demonstration with users who are neither held back there nor part of the features here,
and prints the mean reward of every setting, the best one last. Takes some seconds a setting.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from itertools import product
from pathlib import Path

import numpy as np

from examples import movielens
from examples.environments import Environment
from shortlist_client.files.progress import progress
from studies.bench.many_keys import OURS, People, Way, play

EXPLORATIONS = (0.03, 0.1, 0.3)
RIDGES = (0.3, 1.0, 3.0)
STRENGTHS = (None, 1.0, 30.0, 100.0)
WAYS = [
    Way(learned=False, exploration=exploration, ridge=ridge, pooled=strength)
    for exploration, ridge, strength in product(EXPLORATIONS, RIDGES, STRENGTHS)
]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m examples.tuning", description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, help="a MovieLens directory")
    parser.add_argument("--users", type=int, default=100, help="as many as the demonstration holds back")
    parser.add_argument("--rounds", type=int, default=100, help="rounds of each user")
    parser.add_argument("--seed", type=int, default=1, help="that of the demonstration")
    parsed = parser.parse_args(arguments)

    ratings = movielens.read(parsed.data)
    _, others, known = movielens.split(ratings, parsed.users, seed=parsed.seed)
    known = np.setdiff1d(known, others)
    game = movielens.environment(ratings, others, known, rounds=parsed.rounds, seed=parsed.seed)
    earned = {way: mean_reward(game, way) for way in progress((OURS, *WAYS), "settings")}
    print(f"mean reward of {game.rounds} rounds, {len(others)} users")
    for way in sorted(earned, key=earned.__getitem__):
        print(f"{earned[way]:8.3f}  {way}")
    return 0


def mean_reward(game: Environment, way: Way) -> float:
    """Over learners and rounds, of Thompson sampling by the service's own algorithm, with all arms there."""
    world = People(
        game.title,
        game.features,
        lambda _: game.means,
        np.zeros(len(game.features)),
        len(game.learners),
        game.rounds,
        rewards="click" if game.clicks else "normal",
        noise=game.noise_std,
        spread=0.5 if game.clicks else None,
        repeats=game.repeats,
    )
    return float(play(world, way).mean())


if __name__ == "__main__":
    sys.exit(main())
