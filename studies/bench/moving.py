"""`shortlist bench moving`: what is left of what was learned when a bandit moves to new features (--data).

Visitors are users of MovieLens who are held back from all features. Everything is done over HTTP, by bandits
that differ in nothing but how they come to the new features.

Pairs, from old features to new ones
    trained again   alternating least squares, 16 numbers: of three fifths of the ratings of others, and of
                    all of them with another seed
    32 to 64        the same, with twice as many numbers
    titles          embeddings of the titles (extra `text`, 64 principal components), to 16 factors: they say
                    nothing about each other, so learners cannot come along

Notation
    prior           of the bandits: as by default, or plain without an intercept
    r2, agreement   what a dry run answers
    kept            what it says of what was learned, and whether the move is refused

Learning: each visitor rates 30 films, and a learner is measured by the correlation of what it
expects of the other films that the visitor rated with these ratings, in the mean of visitors; 0 where it
expects the same of all.
    before          learners with the old features, before the move
    unmoved         the same learners with the new features, as if these had replaced the old ones; null where
                    they are of another length
    none            a bandit that moved with ``none``
    map             one that moved with ``map``; null where that is refused
    new             learners of the same ratings in the new catalogue
    map/new         the ratio

Earning: each visitor is shown 40 films, none twice, by Thompson sampling (Sub-TS). A click is drawn with the
chance of ``movielens.clicked``. Figures are mean chances of the last 10 films, divided by those of a bandit
that had the new features from the start (``start``, as it is).
    none', map'     of bandits that moved after 30 films

A run fails where the default bandits miss a target: ``map/new`` of .8 and ``map'`` of .9 for the first two
pairs, and for titles the refusal, with the word "hardly".
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from app.platform.errors import ShortlistError
from examples.service import temporary_service
from shortlist.types import Matrix, Rows, Vector
from shortlist_client import Client
from shortlist_client.answers import Choice
from shortlist_client.errors import TooDifferent
from shortlist_client.progress import progress
from studies.experiments import movielens
from studies.measurement import report

SEED = 5_701
OLD_SHARE = 0.6
TITLE_NUMBERS = 64
BEFORE, AFTER = "before", "after"
KEEP_S = 86_400
POLL_S = 0.05
PRIORS: Mapping[str, Mapping[str, Any]] = {"default": {}, "plain": {"prior": "plain", "intercept": False}}
CARRIES = ("none", "map")
LEAST_MAP, LEAST_REWARD = 0.8, 0.9
WORDS = ("almost wholly", "in part", "hardly")


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """Films that each visitor rates, and is shown before and after the move."""

    visitors: int = 104
    draws: int = 3
    priors: Sequence[str] = tuple(PRIORS)
    rated: int = 30
    shown: int = 30
    shown_after: int = 10


WHOLE, QUICK = Sizes(), Sizes(visitors=48, draws=1, priors=("default",))


@dataclass(frozen=True, slots=True, eq=False)
class Pair:
    """Shapes: old (K, d), new (K, d')."""

    name: str
    old: Matrix
    new: Matrix


@dataclass(frozen=True, slots=True, eq=False)
class Visitors:
    """``rated``: films that a visitor rates, and the others that were rated, each with the ratings.

    Shapes: chances (U, K).
    """

    rated: Sequence[tuple[Rows, Vector]]
    others: Sequence[tuple[Rows, Vector]]
    chances: Matrix


def run(quick: bool, data: Path | None = None, sizes: Sizes | None = None) -> dict[str, Any]:
    """A row for each pair and prior; print and return them.

    ``quick``: fewer visitors, one draw of them, and bandits without a setting. Raises ShortlistError: no
    MovieLens data in ``data``, or the extra is missing.
    """
    sizes = sizes or (QUICK if quick else WHOLE)
    if data is None:
        raise ShortlistError("moving: --data names no MovieLens directory")
    try:
        ratings, titles = movielens.read(data), movielens.titles(data)
    except (FileNotFoundError, ValueError) as error:
        raise ShortlistError(str(error)) from error
    played: dict[tuple[str, str], list[dict[str, Any]]] = {}
    with temporary_service() as service, service.connect() as client:
        for draw in range(sizes.draws):
            visitors, pairs = world(ratings, titles, sizes, draw)
            for pair in progress(pairs, f"moves, draw {draw}", leave=False):
                for prior in sizes.priors:
                    found = measured(client, pair, PRIORS[prior], visitors, draw=draw, sizes=sizes)
                    played.setdefault((pair.name, prior), []).append(found)
    rows = [{"pair": pair, "prior": prior, **_mean(rows)} for (pair, prior), rows in played.items()]
    return report("moving", rows, seed=SEED) | {"failed": any(map(_misses, rows))}


def world(
    ratings: movielens.Ratings, titles: Mapping[str, str], sizes: Sizes, draw: int
) -> tuple[Visitors, Sequence[Pair]]:
    """Visitors, and pairs of features that know nothing of them."""
    rng = np.random.default_rng((SEED, draw))
    held, _, known = movielens.split(ratings, sizes.visitors, seed=draw)
    rated, others = list[tuple[Rows, Vector]](), list[tuple[Rows, Vector]]()
    for user in held.tolist():
        own = rng.permutation(np.flatnonzero(ratings.users == user))
        for found, some in ((rated, own[: sizes.rated]), (others, own[sizes.rated :])):
            found.append((ratings.movies[some], ratings.values[some].astype(np.float64)))
    visitors = Visitors(rated, others, movielens.clicked(ratings, held, known)[1])
    some = rng.random(len(ratings.values)) < OLD_SHARE
    fewer = replace(
        ratings, users=ratings.users[some], movies=ratings.movies[some], values=ratings.values[some]
    )

    def factors(of: movielens.Ratings, rank: int, seed: int) -> Matrix:
        there = known[known <= of.users.max()]
        return movielens.als_factors(of, there, rank=rank, seed=seed)[1]

    small = factors(ratings, 16, 2)
    embedded = title_features([titles[movie] for movie in ratings.movie_ids])
    return visitors, [
        Pair("trained again", factors(fewer, 16, 1), small),
        Pair("32 to 64", factors(fewer, 32, 3), factors(ratings, 64, 4)),
        Pair("titles", embedded, small),
    ]


def title_features(titles: Sequence[str], dim: int = TITLE_NUMBERS) -> Matrix:
    """Principal components of text embeddings, whose weights are part of the package. Shape: (K, dim).

    Raises ShortlistError: the extra is missing.
    """
    if find_spec("wordllama") is None:
        raise ShortlistError(
            "moving: the extra `text` is not installed: pip install -e '.[text]' in a checkout"
        )
    import wordllama  # noqa: PLC0415 - an extra

    logging.getLogger().setLevel(logging.WARNING)  # it has set up logging, at INFO
    folder = Path(wordllama.__file__).parent
    encoder = wordllama.WordLlama.load(cache_dir=folder, disable_download=True)
    embedded = np.asarray(encoder.embed(list(titles)), dtype=np.float64)
    embedded -= embedded.mean(axis=0)
    _, _, directions = np.linalg.svd(embedded, full_matrices=False)
    found: Matrix = embedded @ directions[:dim].T
    return found


def measured(
    client: Client,
    pair: Pair,
    settings: Mapping[str, Any],
    visitors: Visitors,
    *,
    draw: int,
    sizes: Sizes,
) -> dict[str, Any]:
    """What becomes of learners of these visitors in a pair, by bandits with these settings."""
    for name, features in ((BEFORE, pair.old), (AFTER, pair.new)):
        client.put_catalogue(name, dim=features.shape[1])
        client.upsert_arms(name, features, ids=[str(arm) for arm in range(len(features))])
    names = [f"{what}-{carry}" for what in ("learns", "earns") for carry in (*CARRIES, "new")]
    for name in names:
        repeats = {"repeats": {"most": 1, "within_s": KEEP_S}}
        more: dict[str, Any] = repeats if name.startswith("earns") else {}
        catalogue = AFTER if name.endswith("new") else BEFORE
        client.put_bandit(name, catalogue=catalogue, policy="sub_ts", scope="per_key", **settings, **more)
    learned = _learned(client, pair, visitors, learns_prior="prior" not in settings)
    carries = CARRIES if learned["map"] is not None else ("none",)
    found = {**learned, **_earned(client, visitors, draw, sizes, carries)}
    for name in names:
        client.delete_bandit(name)
    for name in (BEFORE, AFTER):
        client.delete_catalogue(name)
    return found


def _learned(client: Client, pair: Pair, visitors: Visitors, *, learns_prior: bool) -> dict[str, Any]:
    expected = partial(_expected, client, count=len(visitors.rated), learns_prior=learns_prior)
    pins = [
        [{"arm": str(film), "place": place} for place, film in enumerate(films.tolist(), 1)]
        for films, _ in visitors.rated
    ]
    for carry in (*CARRIES, "new"):
        decisions = _choose(
            client, f"learns-{carry}", [{"k": len(own), "rules": {"pin": own}} for own in pins]
        )
        rewards: list[Any] = [
            {"decision": each.decision, "arm": str(film), "value": value}
            for each, (films, values) in zip(decisions, visitors.rated, strict=True)
            for film, value in zip(films.tolist(), values.tolist(), strict=True)
        ]
        client.reward_batch(rewards, wait=True)
    before = expected("learns-map")
    dry = client.move_bandit("learns-map", catalogue=AFTER, dry_run=True)
    refused = False
    _move(client, "learns-none", "none")
    try:
        _move(client, "learns-map", "map")
    except TooDifferent:
        refused = True
    carries = ("none", "new") if refused else ("none", "map", "new")
    after = {carry: expected(f"learns-{carry}") for carry in carries}
    said = " ".join(dry.warnings)
    agree = {name: _correlation(found, pair.new, visitors) for name, found in after.items()}
    same = pair.old.shape[1] == pair.new.shape[1]
    return {
        "d": pair.old.shape[1],
        "d'": pair.new.shape[1],
        "r2": 0.0 if dry.map is None else dry.map.r2,
        "agreement": dry.agreement,
        "kept": next((words for words in WORDS if words in said), "") + (", refused" if refused else ""),
        "before": _correlation(before, pair.old, visitors),
        "unmoved": _correlation(before, pair.new, visitors) if same else None,
        "none": agree["none"],
        "map": agree.get("map"),
        "new": agree["new"],
        "map/new": None if refused else agree["map"] / agree["new"],
    }


def _expected(client: Client, bandit: str, count: int, *, learns_prior: bool) -> Sequence[Vector]:
    """What each visitor's learner knows: theta alone, as the offset is the same for all arms."""
    _await_carried(client, bandit)
    if learns_prior:
        client.refresh_prior(bandit)
    return [np.array(client.get_learner(bandit, f"u{user}").theta) for user in range(count)]


def _correlation(thetas: Sequence[Vector], features: Matrix, visitors: Visitors) -> float:
    found = []
    for theta, (films, values) in zip(thetas, visitors.others, strict=True):
        estimates = features[films] @ theta
        varies = np.ptp(estimates) > 0.0 and np.ptp(values) > 0.0
        found.append(float(np.corrcoef(estimates, values)[0, 1]) if varies else 0.0)
    return float(np.mean(found))


def _earned(
    client: Client, visitors: Visitors, draw: int, sizes: Sizes, carries: Sequence[str]
) -> dict[str, Any]:
    rounds = sizes.shown + sizes.shown_after
    luck = np.random.default_rng((SEED, draw, 1)).random((rounds, *visitors.chances.shape))
    users = np.arange(len(visitors.chances))
    earned: dict[str, list[float]] = {carry: [] for carry in (*carries, "new")}
    for at, lucky in enumerate(luck):
        rewards: list[Any] = []
        for carry, own in earned.items():
            if at == sizes.shown and carry != "new":
                _move(client, f"earns-{carry}", carry)
            asked = [{"seed": int(at * len(users) + user)} for user in users]
            decisions = _choose(client, f"earns-{carry}", asked)
            shown = [int(each.arms[0].id) for each in decisions]
            chances = visitors.chances[users, shown]
            own.append(float(chances.mean()))
            clicks = zip(decisions, lucky[users, shown] < chances, strict=True)
            rewards += [{"decision": each.decision, "value": float(click)} for each, click in clicks]
        client.reward_batch(rewards, wait=True)
    last = {carry: float(np.mean(own[sizes.shown :])) for carry, own in earned.items()}
    ratios = {f"{carry}'": last[carry] / last["new"] if carry in last else None for carry in CARRIES}
    return {"start": last["new"], **ratios}


def _choose(client: Client, bandit: str, asked: Sequence[Mapping[str, Any]]) -> Sequence[Choice]:
    """A decision of each visitor."""
    requests: Any = [{"key": f"u{user}", **each} for user, each in enumerate(asked)]
    return client.choose_batch(bandit, requests).results


def _move(client: Client, bandit: str, carry: Any) -> None:
    client.move_bandit(bandit, catalogue=AFTER, carry=carry)
    _await_carried(client, bandit)


def _await_carried(client: Client, bandit: str) -> None:
    while client.get_bandit(bandit).move is not None:
        time.sleep(POLL_S)


def _mean(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Numbers are means of the draws, words of the last one."""
    return {
        name: value
        if isinstance(value, (str, int)) or value is None
        else float(np.mean([row[name] for row in rows]))
        for name, value in rows[-1].items()
    }


def _misses(row: Mapping[str, Any]) -> bool:
    if row["prior"] != "default":
        return False
    if row["pair"] == "titles":
        return "hardly, refused" not in row["kept"]
    return bool(row["map/new"] < LEAST_MAP or row["map'"] < LEAST_REWARD)
