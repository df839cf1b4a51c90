"""What a pooled prior is worth to users who are new: regret of their first rounds, against the plain prior.

    python -m examples.warm_start --data DIR [--no-repeats] [--strength 1 10]

Users of MovieLens who were held back come one after the other. Starts a service of its own, plays, prints,
and stops it.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from tqdm import tqdm

from examples import movielens
from examples.client import Client, ServiceError
from examples.environments import Environment, Matrix
from examples.service import StartError, temporary_service

ROUNDS = 20
CATALOGUE = "arms"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the comparison; the exit status says whether it went well."""
    parsed = _parser().parse_args(arguments)
    try:
        ratings = movielens.read(parsed.data)
        held, _, known = movielens.split(ratings, parsed.users, seed=parsed.seed)
        game = movielens.environment(ratings, held, known, rounds=ROUNDS, seed=parsed.seed)
        with temporary_service() as server:
            client = Client(server.host, server.port)
            regrets = play(game, client, parsed.strength, repeats=not parsed.no_repeats, seed=parsed.seed)
            client.close()
    except (ServiceError, StartError, OSError, ValueError) as error:
        print(f"warm_start: {error}", file=sys.stderr)
        return 1
    _report(game, regrets)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m examples.warm_start")
    parser.add_argument("--data", type=Path, required=True, help="a MovieLens directory")
    parser.add_argument("--users", type=int, default=100, help="users held back")
    parser.add_argument("--strength", type=float, nargs="*", default=[1.0], help="prior_strength to compare")
    parser.add_argument("--no-repeats", action="store_true", help="recommend no arm twice to a user")
    parser.add_argument("--seed", type=int, default=1, help="of the split, the arrivals and the draws")
    return parser


def play(
    game: Environment, client: Client, strengths: Sequence[float], *, repeats: bool, seed: int
) -> dict[str, Matrix]:
    """Regrets (L, ROUNDS) by name of the bandit; both draw with the same seeds."""
    bandits = {"plain": {"prior": "plain"}}
    bandits |= {f"pooled-{s:g}": {"prior": "pooled", "prior_strength": s} for s in strengths}
    _set_up(game, client, bandits)
    regrets = {name: np.zeros((len(game.learners), ROUNDS)) for name in bandits}
    for learner, key in enumerate(tqdm(game.learners, unit=" users", disable=None)):
        for name in bandits:
            taken: list[str] = []
            for at in range(ROUNDS):
                ask = {"key": key, "seed": (seed * 10_000 + learner) * ROUNDS + at}
                ask |= {} if repeats else {"exclude": taken}
                choice = client.call("POST", f"/v1/bandits/{name}/choose", ask)
                taken.append(choice["arms"][0]["id"])
                value = float(game.means[learner, int(taken[-1])])
                reward = {"decision": choice["decision"], "value": value}
                client.call("POST", "/v1/rewards?wait=applied", {"rewards": [reward]})
                regrets[name][learner, at] = 1.0 - value
    return regrets


def _set_up(game: Environment, client: Client, bandits: dict[str, dict[str, object]]) -> None:
    client.call("PUT", f"/v1/catalogues/{CATALOGUE}", {"dim": game.features.shape[1]})
    rows = enumerate(game.features[: game.present[0]])
    arms = [{"id": str(row), "features": features.tolist()} for row, features in rows]
    client.call("PUT", f"/v1/catalogues/{CATALOGUE}/arms", {"arms": arms})
    settings = {"scope": "per_key", "ridge": game.ridge, "exploration": game.exploration}
    for name, prior in bandits.items():
        body = {"catalogue": CATALOGUE, "policy": "linear_ts", **settings, **prior}
        client.call("PUT", f"/v1/bandits/{name}", body)


def _report(game: Environment, regrets: dict[str, Matrix]) -> None:
    plain = regrets["plain"].sum(axis=1)
    print(f"{game.title}\nregret of the first {ROUNDS} rounds, mean over {len(plain)} users who come in turn")
    for name, table in regrets.items():
        totals = table.sum(axis=1)
        gain = plain - totals
        error = gain.std(ddof=1) / np.sqrt(len(gain))
        print(f"  {name:14} {totals.mean():6.2f}   less than plain by {gain.mean():5.2f} +- {error:.2f}")


if __name__ == "__main__":
    sys.exit(main())
