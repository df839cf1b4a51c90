"""`shortlist bench peers`: a decision, and what is earned, beside what a user would take instead.

One learner learns from clicks which of K items to show. Items are unit vectors of low rank (``choose.make``).
A click has the probability .25 + .25 x.theta / max |x.theta|, so that the best item is clicked every other
time. Every peer decides, sees the click, learns, and decides again.

Notation
    K, d            items, dimension
    decide_ms       median time of a decision; learn_ms: of learning from its reward
    rounds          as many as there was time for: ``BUDGET_S`` a peer, and none for more items once a
                    decision takes ``SLOW_S``
    skipped         peers that have no row of these items: too slow with fewer, or not made and played within
                    ``LONGEST_S``
    regret_100      mean of (best - shown) clicks in the first 100 rounds, of that of random items: 1 learned
                    nothing. Likewise of 1,000; none where fewer were reached

Each peer is used as its documentation says, with its defaults and with the best setting that it documents for
this task. What it leaves to its user is in ``CANNOT``. item-kNN, EASE and ALS know ``LIKES`` likes of each of
``OTHERS`` other people, which follow the items' features, and rank by what this one liked, or by popularity
until something is liked. They are fitted once; the factors of this person are solved again for each decision.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import packages_distributions, version
from importlib.util import find_spec
from types import FrameType
from typing import Any, Protocol

import numpy as np
from scipy.sparse import csr_array, csr_matrix
from threadpoolctl import threadpool_limits

from examples.service import temporary_service
from shortlist.embedding import item_to_item
from shortlist.linear import linear_ts, ridge, ridge_sums, scales
from shortlist.linear.exploration import exploration_of_dimension
from shortlist.types import Matrix, Vector
from shortlist_client.progress import progress
from studies.bench.choose import make
from studies.measurement import report

SEED = 62
ITEMS, QUICK_ITEMS = (1_000, 30_000, 1_000_000), (1_000, 30_000)
DIMS, QUICK_DIMS = (32, 128), (32,)
BUDGET_S, QUICK_BUDGET_S = 60.0, 8.0
LONGEST_S, QUICK_LONGEST_S = 600.0, 60.0  # of a peer with all that it makes beforehand
OTHERS, LIKES, SOME = 2_000, 20, 300  # each likes the best of SOME items that it saw
ROUNDS = 2_000
SLOW_S = 1.0
CLICK_NOISE = 0.5  # standard deviation of a click, at most
BATCH = 20_000  # items that are sent, or looked at, together
CANNOT = {
    "vowpal": "search (it reads every item), filters, rewards that come late or twice",
    "mabwiser": "features of items (it learns each alone), filters, rewards that come late or twice",
    "bayesianbandits": "search (it reads every item), filters, a store, rewards that come late or twice",
    "contextualbandits": "features of items (it learns each alone), filters, rewards that come late or twice",
    "faiss": "deletions, filters, a store, rewards that come late or twice",
    "item-knn": "new items, exploration, filters, a store (it needs others' likes)",
    "ease": "new items, exploration, filters, a store (it needs others' likes)",
    "implicit": "new items, exploration, filters, a store (it needs others' likes)",
    "library": "search (this reads every item), filters, a store, rewards that come late or twice",
    "service": "a process to run",
}


class Peer(Protocol):
    """What decides and learns. Made from items (K, d) and one of its settings."""

    def choose(self) -> int:
        """The row of an item."""

    def learn(self, row: int, click: float) -> None:
        """What the item that was chosen earned."""


@dataclass(frozen=True, slots=True)
class Way:
    """A peer; ``module``: what must be installed."""

    name: str
    setting: str
    module: str
    made: Callable[[Matrix, str], Peer]


class World:
    """Items, and the clicks that they get."""

    def __init__(self, arms: int, dim: int) -> None:
        self.rng = np.random.default_rng((SEED, arms, dim))
        self.items = make(arms, dim, "low_rank", self.rng)
        scores = self.items @ self.rng.standard_normal(dim)
        self.chances: Vector = 0.25 + 0.25 * scores / np.abs(scores).max()
        self.best, self.random = float(self.chances.max()), float(self.chances.mean())


def run(quick: bool) -> dict[str, Any]:
    """Every peer on every world; print and return the rows."""
    rows: list[dict[str, Any]] = []
    skipped: list[str] = []
    budget, longest = (QUICK_BUDGET_S, QUICK_LONGEST_S) if quick else (BUDGET_S, LONGEST_S)
    ways = list(installed(PEERS))
    for dim in QUICK_DIMS if quick else DIMS:
        slow = set[tuple[str, str]]()
        for arms in QUICK_ITEMS if quick else ITEMS:
            world = World(arms, dim)
            skipped += [_named(way, arms, dim) + "slow" for way in ways if (way.name, way.setting) in slow]
            left = [way for way in ways if (way.name, way.setting) not in slow]
            for way in progress(left, f"peers at K = {arms:,}, d = {dim}"):
                try:
                    with at_most(longest):
                        row = played(world, way, budget)
                except Overdue:
                    skipped.append(_named(way, arms, dim) + f"more than {longest:.0f} s")
                    slow.add((way.name, way.setting))
                    continue
                rows.append({"K": arms, "dim": dim, **row, "cannot": CANNOT[way.name]})
                if row["decide_ms"] > 1e3 * SLOW_S:
                    slow.add((way.name, way.setting))
    for each in skipped:
        print(f"skipped: {each}")
    found = report("peers", rows, seed=SEED) | {"skipped": skipped}
    modules = packages_distributions()
    found["versions"] |= {name: version(name) for way in ways for name in modules.get(way.module, ())}
    return found


def _named(way: Way, arms: int, dim: int) -> str:
    return f"{way.name} {way.setting or 'its defaults'}, K = {arms:,}, d = {dim}: "


class Overdue(Exception):
    """A peer took longer than it may."""


@contextmanager
def at_most(seconds: float) -> Iterator[None]:
    """Raise ``Overdue`` in the body once so many seconds are over. Only in the main thread."""

    def end(_number: int, _frame: FrameType | None) -> None:
        raise Overdue

    before = signal.signal(signal.SIGALRM, end)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, before)


def installed(peers: Sequence[Way]) -> Iterator[Way]:
    """The peers that are installed; the others are named."""
    missing = dict.fromkeys(way.module for way in peers if find_spec(way.module) is None)
    for module in missing:
        print(f"{module} is not installed (.venv/bin/pip install -e '.[peers]'): it has no row")
    yield from (way for way in peers if way.module not in missing)


def played(world: World, way: Way, budget_s: float, rounds: int = ROUNDS) -> dict[str, Any]:
    """The figures of one peer, after at most so many rounds, or seconds."""
    rng = np.random.default_rng(SEED)  # of the clicks: the same for every peer
    decide, learn, lost = list[float](), list[float](), list[float]()
    with threadpool_limits(1):
        began = time.perf_counter()
        peer = way.made(world.items, way.setting)
        build_s = time.perf_counter() - began
        began = time.perf_counter()
        try:
            while len(lost) < rounds and time.perf_counter() - began < budget_s:
                started = time.perf_counter()
                row = peer.choose()
                decided = time.perf_counter()
                peer.learn(row, float(rng.random() < world.chances[row]))
                decide.append(decided - started)
                learn.append(time.perf_counter() - decided)
                lost.append(world.best - float(world.chances[row]))
        finally:
            close = getattr(peer, "close", None)
            if close is not None:
                close()
    whole = world.best - world.random
    return {
        "peer": way.name,
        "setting": way.setting or "its defaults",
        "decide_ms": 1e3 * float(np.median(decide)),
        "learn_ms": 1e3 * float(np.median(learn)),
        "build_s": build_s,
        "rounds": len(lost),
        "regret_100": float(np.mean(lost[:100])) / whole if len(lost) >= 100 else None,
        "regret_1000": float(np.mean(lost[:1_000])) / whole if len(lost) >= 1_000 else None,
    }


class Library:
    """``shortlist`` as a library: exact Thompson sampling. The last coefficient is that of a constant."""

    def __init__(self, items: Matrix, _setting: str) -> None:
        self._items, dim = items, items.shape[1] + 1
        self._constant = float(np.sqrt((items**2).mean()))
        self._sums = ridge_sums.empty(dim)
        self._ridge = scales.ridge_share(dim) * (1.0 + self._constant**2)  # of unit vectors
        self._exploration = CLICK_NOISE * exploration_of_dimension(dim)
        self._rng = np.random.default_rng(SEED)

    def choose(self) -> int:
        posterior = ridge.posterior(self._sums, ridge=self._ridge)
        drawn = linear_ts.draw(posterior, exploration=self._exploration, rng=self._rng)
        return int((self._items @ drawn[:-1]).argmax())

    def learn(self, row: int, click: float) -> None:
        x = np.append(self._items[row], self._constant)[None]
        self._sums = ridge_sums.add(self._sums, x, np.array([click]), np.ones(1, dtype=np.bool_))


class OverFaiss:
    """What one would write: a graph of faiss, and ridge regression with Thompson sampling around it."""

    def __init__(self, items: Matrix, setting: str) -> None:
        import faiss  # noqa: PLC0415 - a peer that need not be installed

        self._items, dim = items, items.shape[1]
        self._index = faiss.IndexHNSWFlat(dim, 32, faiss.METRIC_INNER_PRODUCT)
        self._index.add(items.astype(np.float32))
        self._index.hnsw.efSearch = 64
        self._scale = CLICK_NOISE if setting else 1.0
        self._precision, self._moment = np.eye(dim), np.zeros(dim)
        self._rng = np.random.default_rng(SEED)

    def choose(self) -> int:
        factor = np.linalg.cholesky(self._precision)
        mean = np.linalg.solve(self._precision, self._moment)
        drawn = mean + self._scale * np.linalg.solve(factor.T, self._rng.standard_normal(len(mean)))
        return int(self._index.search(drawn[None].astype(np.float32), 1)[1][0, 0])

    def learn(self, row: int, click: float) -> None:
        self._precision += np.outer(self._items[row], self._items[row])
        self._moment += click * self._items[row]


class OverHttp:
    """The service: one process and its store, the client of Python, one connection. No setting."""

    def __init__(self, items: Matrix, _setting: str) -> None:
        self._manager = temporary_service()
        self._client = self._manager.__enter__().connect(timeout_s=600.0)
        try:
            self._fill(items)
        except BaseException:
            self.close()
            raise
        self._decision = ""

    def _fill(self, items: Matrix) -> None:
        self._client.put_catalogue("items", dim=items.shape[1])
        for first in range(0, len(items), BATCH):
            some = items[first : first + BATCH]
            self._client.upsert_arms("items", some, ids=[str(first + i) for i in range(len(some))])
        while self._client.get_catalogue("items").index["state"] != "ready":
            time.sleep(0.2)
        reward: Any = {"min": 0.0, "max": 1.0}
        self._client.put_bandit("page", catalogue="items", policy="sub_ts", reward=reward)

    def choose(self) -> int:
        choice = self._client.choose("page", once=False)
        self._decision = choice.decision
        return int(choice.arms[0].id)

    def learn(self, _row: int, click: float) -> None:
        self._client.reward(self._decision, value=click, wait=True)

    def close(self) -> None:
        self._client.close()
        self._manager.__exit__(None, None, None)


class Vowpal:
    """``--cb_explore_adf``: one line of text for each item."""

    def __init__(self, items: Matrix, setting: str) -> None:
        from vowpalwabbit import Workspace  # noqa: PLC0415 - a peer that need not be installed

        self._workspace = Workspace(f"--cb_explore_adf --quiet --random_seed {SEED} {setting}")
        self._lines = [
            "|f " + " ".join(f"{place}:{number:.6f}" for place, number in enumerate(item.tolist()))
            for item in items
        ]
        self._text = "\n".join(self._lines)
        self._rng, self._chance = np.random.default_rng(SEED), 1.0

    def choose(self) -> int:
        shares = np.array(self._workspace.predict(self._text))
        row = int(self._rng.choice(len(shares), p=shares / shares.sum()))
        self._chance = float(shares[row])
        return row

    def learn(self, row: int, click: float) -> None:
        labelled = f"0:{-click}:{self._chance} {self._lines[row]}"
        self._workspace.learn("\n".join((*self._lines[:row], labelled, *self._lines[row + 1 :])))


class BayesianBandits:
    """``LipschitzContextualAgent``: a Gaussian posterior that all items share."""

    def __init__(self, items: Matrix, setting: str) -> None:
        import bayesianbandits  # noqa: PLC0415 - a peer that need not be installed

        with_constant = np.column_stack((items, np.ones(len(items))))

        def featurized(contexts: Matrix, tokens: list[int]) -> Any:
            return with_constant[tokens].T[None].repeat(len(contexts), axis=0)

        self._agent = bayesianbandits.LipschitzContextualAgent(
            [bayesianbandits.Arm(row, learner=None) for row in range(len(items))],
            bayesianbandits.ThompsonSampling(),
            bayesianbandits.FunctionArmFeaturizer(featurized),
            bayesianbandits.NormalRegressor(alpha=1.0, beta=CLICK_NOISE**-2 if setting else 1.0),
            random_seed=SEED,
        )
        self._context = np.ones((1, 1))

    def choose(self) -> int:
        (row,) = self._agent.pull(self._context)
        return int(row)

    def learn(self, _row: int, click: float) -> None:
        self._agent.update(self._context, np.array([click]))


class Mabwiser:
    """``MAB`` with a constant as context: it has no features of items, and learns each alone."""

    def __init__(self, items: Matrix, setting: str) -> None:
        from mabwiser.mab import MAB, LearningPolicy  # noqa: PLC0415 - a peer that need not be installed

        policy = LearningPolicy.LinTS() if setting == "LinTS" else LearningPolicy.LinUCB()
        self._bandit = MAB(list(range(len(items))), policy, seed=SEED)
        self._bandit.fit([0], [0], [[1.0]])

    def choose(self) -> int:
        return int(self._bandit.predict([[1.0]]))

    def learn(self, row: int, click: float) -> None:
        self._bandit.partial_fit([row], [click], [[1.0]])


class ContextualBandits:
    """``LinUCB`` and ``LinTS`` with a constant as context: as in ``Mabwiser``."""

    def __init__(self, items: Matrix, setting: str) -> None:
        from contextualbandits import online  # noqa: PLC0415 - a peer that need not be installed

        made = online.LinTS if setting == "LinTS" else online.LinUCB
        self._policy = made(nchoices=len(items), random_state=SEED)
        self._context = np.ones((1, 1))
        self._policy.partial_fit(self._context, np.zeros(1, dtype=np.int64), np.zeros(1))

    def choose(self) -> int:
        return int(np.atleast_1d(self._policy.predict(self._context))[0])

    def learn(self, row: int, click: float) -> None:
        self._policy.partial_fit(self._context, np.array([row]), np.array([click]))


def likes_of_others(items: Matrix) -> csr_array:
    """1 where a person liked an item: the ``LIKES`` best for a taste of those seen. Shape: (OTHERS, K)."""
    rng, count = np.random.default_rng(SEED), min(SOME, len(items))
    rows = np.empty((OTHERS, LIKES), dtype=np.int64)
    for person in range(OTHERS):
        seen = rng.choice(len(items), count, replace=False)
        rows[person] = seen[np.argsort(items[seen] @ rng.standard_normal(items.shape[1]))[-LIKES:]]
    people = np.repeat(np.arange(OTHERS), LIKES)
    return csr_array((np.ones(rows.size), (people, rows.ravel())), shape=(OTHERS, len(items)))


class ByLikes:
    """Ranks by what this person liked; by popularity, ties at random, until something is liked."""

    def __init__(self, items: Matrix, _setting: str) -> None:
        likes = likes_of_others(items)
        popularity: Vector = np.asarray(likes.sum(axis=0), dtype=np.float64).ravel()
        self._popular = int((popularity + np.random.default_rng(SEED).random(len(items))).argmax())
        self._liked = np.zeros((1, len(items)))
        self._fit(likes)

    def choose(self) -> int:
        return self._best() if self._liked.any() else self._popular

    def learn(self, row: int, click: float) -> None:
        self._liked[0, row] += click

    def _fit(self, likes: csr_array) -> None:
        self._model: Any = item_to_item.item_knn(likes)

    def _best(self) -> int:
        return int(self._model.scores(csr_array(self._liked))[0].argmax())


class Ease(ByLikes):
    """The ridge is chosen by likes that are held out."""

    def _fit(self, likes: csr_array) -> None:
        self._model = item_to_item.ease(likes, item_to_item.best_ridge(likes, np.random.default_rng(SEED)))


class ImplicitAls(ByLikes):
    """``AlternatingLeastSquares`` with its defaults."""

    def _fit(self, likes: csr_array) -> None:
        from implicit.als import AlternatingLeastSquares  # noqa: PLC0415 - a peer that need not be installed

        self._model = AlternatingLeastSquares(num_threads=1, random_state=SEED)
        self._model.fit(csr_matrix(likes, dtype=np.float32), show_progress=False)

    def _best(self) -> int:
        liked = csr_matrix(self._liked, dtype=np.float32)
        rows, _ = self._model.recommend(
            0, liked, N=1, filter_already_liked_items=False, recalculate_user=True
        )
        return int(rows[0])


PEERS = (
    Way("vowpal", "", "vowpalwabbit", Vowpal),
    Way("vowpal", "--squarecb", "vowpalwabbit", Vowpal),
    Way("mabwiser", "LinTS", "mabwiser", Mabwiser),
    Way("mabwiser", "LinUCB", "mabwiser", Mabwiser),
    Way("bayesianbandits", "", "bayesianbandits", BayesianBandits),
    Way("bayesianbandits", "noise .5", "bayesianbandits", BayesianBandits),
    Way("contextualbandits", "LinTS", "contextualbandits", ContextualBandits),
    Way("contextualbandits", "LinUCB", "contextualbandits", ContextualBandits),
    Way("faiss", "", "faiss", OverFaiss),
    Way("faiss", "noise .5", "faiss", OverFaiss),
    Way("item-knn", "", "shortlist", ByLikes),
    Way("ease", "", "shortlist", Ease),
    Way("implicit", "", "implicit", ImplicitAls),
    Way("library", "", "shortlist", Library),
    Way("service", "", "shortlist_client", OverHttp),
)
