"""`shortlist bench people`: lists for new people beside what one would use instead, on the same information.

60 people are played for 20 rounds of five arms, none twice; a hit is an arm that they like. The bandit is one
of the service over HTTP, without a setting; choices of a round are made with one prior, which is fitted after
it. Opponents are fitted again after every round.

Settings
    table           of arms alone; nobody is known
    history         the table with a column of popularity, and what others were shown before, which is taught
    behaviour       arms are made of what others liked, by `shortlist embed`; nothing is taught. Beside the
                    opponents stands the same bandit without the prior of the history
    begin           `shortlist begin` is given the table and what others were shown; nothing is taught

Worlds are those of ``behaviour_worlds``; what a fifth of the likes, or views, say of others is about
behaviour: *thin* and *sales* have behaviour and begin alone, and *shop* begin alone.

Columns
    ours, theirs    hits a list in all rounds
    ratio           ours / theirs, and error: its standard error over draws, or over the people of one
    first5          the same in the first five rounds
    ahead           the first round from which ours has more hits in every five rounds; none: not in the last

The worst row is printed last.
"""

from __future__ import annotations

import csv
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from app.platform.errors import ShortlistError
from examples.service import SHORTLIST, temporary_service
from shortlist.types import Matrix, Vector
from shortlist_client import Client
from shortlist_client.progress import progress
from studies.bench import behaviour_worlds, opponents
from studies.bench.behaviour_worlds import Events, World
from studies.bench.opponents import Given, Opponent, Way
from studies.experiments import movielens
from studies.measurement import report

SEED = 7_201
ROUNDS, SHOWN = 20, 5
QUICK_PLAYED, QUICK_OTHERS, QUICK_ROUNDS, QUICK_ARMS = 30, 200, 10, 600
QUICK_OF_SHOP = 50  # known, and new: a behaviour of DIM numbers needs more people than it has numbers
QUICK_IS = (
    f"quick: smaller worlds of the same kinds, with {QUICK_PLAYED} people (shop: {2 * QUICK_OF_SHOP}), "
    f"{QUICK_ROUNDS} rounds, {QUICK_ARMS} arms (films: all) and one draw.\nThese ratios are not those of "
    "docs/measurements.md, and others may lead here: for those, run it without --quick.\nErrors are over the "
    "people of the draw; another world of the kind may differ by more."
)
DRAWS = 3
EARLY, WINDOW = 5, 5
WITHIN_S = 86_400
NO_PRIOR = "no prior"
BEHAVIOUR_ALONE, BEGIN_ALONE = {"thin", "sales"}, {"shop"}
OURS: Mapping[str, Mapping[str, Any]] = {"ours": {}}  # name -> settings of the bandit


@dataclass(frozen=True, slots=True, eq=False)
class Setting:
    """What is given to all; ``taught``: what of it the bandit is taught.

    ``command``: which one makes features of the table and of what others liked; None: they are given.
    """

    name: str
    given: Given
    taught: Events | None = None
    command: Literal["embed", "begin"] | None = None


def run(quick: bool, data: Path | None = None) -> dict[str, Any]:
    """Play all worlds, films only with ``data``; print and return a row for each setting and opponent.

    ``quick``: one draw, fewer people, rounds and arms. Raises ShortlistError: no MovieLens data in ``data``.
    """
    ways = list(opponents.installed(opponents.OPPONENTS))
    rounds, draws = (QUICK_ROUNDS, 1) if quick else (ROUNDS, DRAWS)
    found = report("people", rows_of(worlds(quick, data), ways, rounds=rounds, draws=draws), seed=SEED)
    if quick:
        print(QUICK_IS)
    return found


def rows_of(
    makes: Sequence[Callable[[int], World]], ways: Sequence[Way], *, rounds: int, draws: int
) -> Sequence[Mapping[str, Any]]:
    """Play these worlds; the rows, those of largest ratio first."""
    hits: dict[tuple[str, str], dict[str, list[Matrix]]] = {}
    with temporary_service() as service, service.connect() as client, threadpool_limits(1):
        for draw in progress(range(draws), "draws"):
            for world in (make(draw) for make in makes):
                for setting in settings(world):
                    found = hits.setdefault((world.name, setting.name), {})
                    own = partial(play_over_http, client, world, setting, rounds=rounds, draw=draw)
                    for name, fields in OURS.items():
                        found.setdefault(name, []).append(own(fields))
                    if setting.command == "embed":
                        found.setdefault(NO_PRIOR, []).append(own({}, "--without-prior"))
                    for way in progress(ways, f"{world.name}, {setting.name}", leave=False):
                        theirs = play(world, way.make(setting.given, draw), rounds)
                        found.setdefault(way.name, []).append(theirs)
    rows = (
        {"world": world, "setting": setting, **compared(name, found[name], way, found[way])}
        for (world, setting), found in hits.items()
        for name in OURS
        for way in [*(way.name for way in ways), NO_PRIOR]
        if way in found
    )
    return sorted(rows, key=lambda row: -row["ratio"])


def worlds(quick: bool, data: Path | None) -> Sequence[Callable[[int], World]]:
    """Raises ShortlistError: no MovieLens data in ``data``."""
    smaller: Any = {"played": QUICK_PLAYED, "arms": QUICK_ARMS} if quick else {}
    makes: list[Callable[[int], World]] = [
        partial(behaviour_worlds.kinds, **smaller),
        partial(behaviour_worlds.niches, **smaller),
        partial(behaviour_worlds.thin, **smaller),
        partial(behaviour_worlds.sales, **smaller),
        partial(
            behaviour_worlds.shop,
            **({"known": QUICK_OF_SHOP, "new": QUICK_OF_SHOP, "arms": QUICK_ARMS} if quick else {}),
        ),
    ]
    if data is None:
        print("films are left out: --data names no MovieLens directory")
        return makes
    try:
        ratings = movielens.read(data)
        films = partial(behaviour_worlds.films, ratings, movielens.described(data, ratings))
        if quick:
            films = partial(films, played=QUICK_PLAYED, others=QUICK_OTHERS)
        films(0)
    except (OSError, ValueError) as error:
        raise ShortlistError(f"--data: {error}") from None
    return [films, *makes]


def settings(world: World) -> Sequence[Setting]:
    """The settings of a world; of one whose past is not as its people are, those of behaviour alone."""
    past, others = (None, 0) if world.name in BEGIN_ALONE else (world.past, world.others)
    given = partial(Given, people=len(world.likes), past=past, others=others)
    begin = Setting("begin", given(world.embedding()), command="begin")
    if world.name in BEGIN_ALONE:
        return [begin]
    behaviour = Setting("behaviour", given(world.embedding()), command="embed")
    if world.name in BEHAVIOUR_ALONE:
        return [behaviour, begin]
    return [
        Setting("table", Given(world.table, len(world.likes))),
        Setting("history", given(world.table_with_popularity()), world.past),
        behaviour,
        begin,
    ]


def play(world: World, opponent: Opponent, rounds: int) -> Matrix:
    """Hits of each list. Shape: (rounds, people)."""
    before, hits = world.past_of_known, np.empty((rounds, len(world.likes)))
    seen = _liked_before(world)
    shown_now = np.zeros_like(seen)
    if world.known:
        opponent.learn(before)
    people = np.arange(len(world.likes))
    for at in range(rounds):
        scores = np.array([opponent.scores(person) for person in people.tolist()])
        scores[seen] = -np.inf
        shown = np.argpartition(-scores, SHOWN - 1, axis=1)[:, :SHOWN]
        for each in (seen, shown_now):
            np.put_along_axis(each, shown, np.bool_(True), axis=1)
        hits[at] = np.take_along_axis(world.likes, shown, axis=1).sum(axis=1)
        shown_to, arms = np.nonzero(shown_now)
        now = Events(shown_to, arms, world.likes[shown_now])
        opponent.learn(
            Events(*(np.concatenate(pair) for pair in zip(_arrays(before), _arrays(now), strict=True)))
        )
    return hits


def _arrays(events: Events) -> tuple[Any, Any, Any]:
    return events.people, events.arms, events.liked


def _liked_before(world: World) -> NDArray[np.bool_]:
    """What people who are played liked in the past, and are not shown again. Shape: (U, K)."""
    own = world.past_of_known
    found = np.zeros(world.likes.shape, dtype=np.bool_)
    found[own.people[own.liked], own.arms[own.liked]] = True
    return found


def play_over_http(
    client: Client,
    world: World,
    setting: Setting,
    fields: Mapping[str, Any],
    *flags: str,
    rounds: int,
    draw: int,
) -> Matrix:
    """Hits of each list. ``fields``: of the bandit, ``flags``: of the command. Shape: (rounds, people)."""
    features = world.table if setting.command else setting.given.features
    if setting.command == "begin":
        catalogue = _begin(client, world, *flags)
    else:
        client.put_catalogue("arms", dim=features.shape[1])
        client.upsert_arms("arms", features, ids=[str(arm) for arm in range(len(features))])
        catalogue = _embed(client, world.past, *flags) if setting.command else "arms"
    body: Any = {
        "reward": {"min": 0.0, "max": 1.0},
        "repeats": {"most": 1, "within_s": WITHIN_S},
        **fields,
    }
    client.put_bandit("lists", catalogue=catalogue, policy="sub_ts", scope="per_key", **body)
    if setting.taught is not None:
        _teach(client, setting.taught)
    people = len(world.likes)
    hits = np.empty((rounds, people))
    excluded = [
        {"exclude": list(map(str, np.flatnonzero(row)))} if row.any() else {} for row in _liked_before(world)
    ]
    for at in range(rounds):
        asked: Any = [
            {"key": f"new{person}", "k": SHOWN, "seed": (draw * rounds + at) * people + person}
            | excluded[person]
            for person in range(people)
        ]
        choices = client.choose_batch("lists", asked).results
        shown = [[int(arm.id) for arm in choice.arms] for choice in choices]
        liked = np.take_along_axis(world.likes, np.array(shown), axis=1)
        rewards: Any = [
            {"decision": choice.decision, "arm": str(arm), "value": float(hit)}
            for choice, arms, own in zip(choices, shown, liked.tolist(), strict=True)
            for arm, hit in zip(arms, own, strict=True)
        ]
        client.reward_batch(rewards, wait=True)
        hits[at] = liked.sum(axis=1)
        client.refresh_prior("lists")
    client.delete_bandit("lists")
    for name in {catalogue: None, "arms": None}:  # what follows goes first
        client.delete_catalogue(name)
    return hits


def _embed(client: Client, past: Events, *flags: str) -> str:
    """The catalogue that `shortlist embed` makes of what others liked."""
    with tempfile.TemporaryDirectory() as folder:
        history = _history(Path(folder), past.of(past.liked))
        asked = ["--from", "arms", "--catalogue", "behaviour", "--key-column", "key", "--arm-column", "arm"]
        _run(client, "embed", "--history", history, *asked, *flags)
    return "behaviour"


def _begin(client: Client, world: World, *flags: str) -> str:
    """The catalogue that `shortlist begin` makes; its bandit has a holdout, and is deleted."""
    with tempfile.TemporaryDirectory() as folder:
        items = Path(folder, "items.csv")
        with items.open("w", newline="") as file:
            rows = csv.writer(file)
            rows.writerow(("arm", *(f"column{place}" for place in range(world.table.shape[1]))))
            rows.writerows((arm, *row) for arm, row in enumerate(world.table.tolist()))
        asked = ["--id", "arm", "--key", "key", "--arm", "arm", "--value", "liked"]
        _run(
            client,
            "begin",
            "arms",
            "--items",
            items,
            "--history",
            _history(Path(folder), world.past),
            *asked,
            *flags,
        )
    client.delete_bandit("arms")
    return "arms-likes"


def _history(folder: Path, past: Events) -> Path:
    found = folder / "history.csv"
    with found.open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(("key", "arm", "liked"))
        rows.writerows(
            zip(past.people.tolist(), past.arms.tolist(), past.liked.astype(int).tolist(), strict=True)
        )
    return found


def _run(client: Client, *words: str | Path) -> None:
    command = [sys.executable, "-c", SHORTLIST, *map(str, words), "--url", client.url]
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 - our own command
    if done.returncode:
        raise ShortlistError(done.stderr)


def _teach(client: Client, past: Events) -> None:
    rows = zip(past.people.tolist(), past.arms.tolist(), past.liked.tolist(), strict=True)
    observations: Any = (
        {"id": str(row), "key": f"past{person}", "arm": str(arm), "value": float(liked)}
        for row, (person, arm, liked) in enumerate(rows)
    )
    client.observe("lists", observations, wait=True)
    client.refresh_prior("lists")


def compared(name: str, ours: Sequence[Matrix], other: str, theirs: Sequence[Matrix]) -> dict[str, Any]:
    """The row of these hits, a matrix of rounds and people for each draw."""
    own, against = np.array(ours), np.array(theirs)
    return {
        "way": name,
        "opponent": other,
        "ours": float(own.mean()),
        "theirs": float(against.mean()),
        **_ratio("ratio", "error", own, against),
        **_ratio("first5", "first5_error", own[:, :EARLY], against[:, :EARLY]),
        "ahead": ahead_from((own - against).mean(axis=(0, 2))),
    }


def _ratio(name: str, error: str, own: NDArray[np.float64], against: NDArray[np.float64]) -> dict[str, float]:
    """The mean ratio of draws, and its error. Shapes: (draws, rounds, people)."""
    ours, theirs = own.sum(axis=1), against.sum(axis=1)
    ratios = ours.sum(axis=1) / theirs.sum(axis=1)
    spread = ratios.std(ddof=1) / np.sqrt(len(ratios)) if len(ratios) > 1 else _error(ours[0], theirs[0])
    return {name: float(ratios.mean()), error: float(spread)}


def _error(ours: Vector, theirs: Vector) -> float:
    """The standard error over people of the ratio of their sums. Shapes: (people,)."""
    left = ours - ours.sum() / theirs.sum() * theirs
    return float(np.sqrt(np.square(left).sum()) / theirs.sum())


def ahead_from(more: Vector) -> int | None:
    """The first round from which every ``WINDOW`` rounds have more; None: not even the last have."""
    behind = np.flatnonzero(np.convolve(more, np.ones(min(WINDOW, len(more))), "valid") <= 0.0)
    if not len(behind):
        return 1
    last = int(behind[-1])
    return None if last == len(more) - min(WINDOW, len(more)) else last + 2
