"""What it brings to show a new user the k centres first: the first rounds of MovieLens, over HTTP.

    python -m examples.exploring --data DIR

Users who are held back meet a service that knows the movies and nothing of them. They are recommended a movie
a round, none twice; a recommendation is right when the user rated the movie 4 or more. Printed are the mean
numbers of right ones after some rounds, for Sub-TS with and without ``explore``, and in brackets the
difference to Sub-TS alone and its standard error over the users. Takes about two minutes.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from examples import movielens
from examples.environments import Environment, Matrix
from examples.service import Server, temporary_service
from shortlist_client import Client
from shortlist_client.bodies import ChooseBody, RewardItem
from shortlist_client.files.progress import progress

CENTERS = (0, 3, 5, 10)
SHOWN = (5, 10, 20, 40)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m examples.exploring", description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, help="a MovieLens directory")
    parser.add_argument("--users", type=int, default=100, help="users held back")
    parser.add_argument("--seeds", type=int, default=5, help="how often users are drawn")
    parser.add_argument("--centers", type=int, nargs="+", default=CENTERS, help="of ``explore``; 0: none")
    parsed = parser.parse_args(arguments)

    ratings = movielens.read(parsed.data)
    right: dict[int, list[Matrix]] = {centers: [] for centers in parsed.centers}
    with temporary_service() as server:
        for seed in progress(range(parsed.seeds), "draws of users"):
            held, _, known = movielens.split(ratings, parsed.users, seed=seed)
            game = movielens.liked_films(ratings, held, known, rounds=max(SHOWN), seed=seed)
            for centers, found in play(game, server, f"draw{seed}", parsed.centers).items():
                right[centers].append(found)
    report({centers: np.concatenate(found) for centers, found in right.items()})
    return 0


def play(game: Environment, server: Server, name: str, numbers: Sequence[int]) -> dict[int, Matrix]:
    """Whether each recommendation was right, by number of centres: (users, rounds)."""
    with Client(server.url) as client:
        client.put_catalogue(name, dim=game.features.shape[1])
        client.upsert_arms(name, game.features, ids=[f"arm-{row}" for row in range(len(game.features))])
        return {centers: _play_one(client, game, name, centers) for centers in numbers}


def _play_one(client: Client, game: Environment, catalogue: str, centers: int) -> Matrix:
    bandit = f"{catalogue}-{centers}"
    client.put_bandit(
        bandit,
        catalogue=catalogue,
        policy="sub_ts",
        scope="per_key",
        ridge=movielens.RIDGE,
        exploration=movielens.EXPLORATION,
        explore={"centers": centers} if centers else None,
    )
    right = np.zeros((len(game.learners), max(SHOWN)))
    seen: list[list[str]] = [[] for _ in game.learners]
    for at in range(max(SHOWN)):
        requests: list[ChooseBody] = [
            {"key": key, "exclude": seen[user], "seed": at} for user, key in enumerate(game.learners)
        ]
        rewards: list[RewardItem] = []
        for user, choice in enumerate(client.choose_batch(bandit, requests).results):
            arm = choice.arms[0].id
            seen[user].append(arm)
            right[user, at] = game.means[user, int(arm.removeprefix("arm-"))]
            rewards.append({"decision": choice.decision, "value": right[user, at]})
        client.reward_batch(rewards, wait=True)
    return right


def report(right: dict[int, Matrix]) -> None:
    """One line a number of centres."""
    print(f"right recommendations after so many rounds, mean of {len(right[0])} users")
    print(f"{'centers':>8}" + "".join(f"{rounds:>22}" for rounds in SHOWN) + "     from round 20 on")
    plain = np.cumsum(right[0], axis=1)
    for centers, found in right.items():
        total = np.cumsum(found, axis=1)
        cells = [_cell(total[:, rounds - 1], plain[:, rounds - 1]) for rounds in SHOWN]
        late = _cell(total[:, -1] - total[:, 19], plain[:, -1] - plain[:, 19])
        print(f"{centers:>8}" + "".join(f"{cell:>22}" for cell in cells) + f"{late:>24}")


def _cell(found: np.ndarray[Any, Any], plain: np.ndarray[Any, Any]) -> str:
    difference = found - plain
    if not difference.any():
        return f"{found.mean():.2f}"
    error = difference.std(ddof=1) / np.sqrt(len(difference))
    return f"{found.mean():.2f} ({difference.mean():+.2f}, {error:.2f})"


if __name__ == "__main__":
    sys.exit(main())
