"""Author coreference: mentions of authors in papers, and Gibbs sampling of who is who, exactly or by races.

Notation
    x_i         mention i, a unit vector; mentions of different names are never of one author
    C_y         cluster y: the mentions that are taken for one author
    f(i, j)     factor of two mentions in one cluster: SCALE (x_i.x_j - THRESHOLD)
    tau         temperature: p(y_i = y) is proportional to exp(sum of f(i, j) over j in C_y, over tau)

One update takes a mention out of its cluster and draws a cluster for it: one of its name's, or an empty one.
In the beginning every mention has a cluster of its own.

Source: Chen and Ghahramani, "Scalable Discrete Sampling as a Multi-Armed Bandit Problem", sections 5.3, C.3;
Bagga and Baldwin 1998 for B^3.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
from scipy.special import ndtri

from shortlist.sampling.clusters import Cluster, racing_clusters, schedule
from shortlist.types import Matrix, Rows, Vector

DIM = 48
SCALE, THRESHOLD = 4.0, 0.25
NOISE = 1.4  # length of what is a mention's own, over that of its author's vector
FIELD, AUTHORS_OF_A_FIELD = (
    0.6,
    4,
)  # share of an author's vector, squared, that is that of a field of research
TAIL = 1.2  # author k has about k^-TAIL of the mentions of a name
HOTTEST, COOLEST = 1.0, 0.2
PRINTED_FIRST = 3


@dataclass(frozen=True, slots=True, eq=False)
class Mentions:
    """The mentions of one name. Shapes: vectors (n, DIM), authors (n,)."""

    vectors: Matrix
    authors: Rows


def make(size: int, authors: int, seed: tuple[int, ...]) -> Mentions:
    """``size`` mentions of at most ``authors`` authors of one name, whose numbers of mentions fall off."""
    rng = np.random.default_rng(seed)
    shares = np.arange(1.0, authors + 1) ** -TAIL
    owners = rng.choice(authors, size=size, p=shares / shares.sum())
    fields = rng.standard_normal((authors // AUTHORS_OF_A_FIELD + 1, DIM))
    own = rng.standard_normal((authors, DIM))
    of = rng.integers(len(fields), size=authors)
    centres = np.sqrt(FIELD) * fields[of] + np.sqrt(1.0 - FIELD) * own
    vectors = centres[owners] + NOISE * rng.standard_normal((size, DIM))
    return Mentions(vectors / np.linalg.norm(vectors, axis=1, keepdims=True), owners)


def b_cubed(clusters: Rows, authors: Rows) -> tuple[float, float]:
    """The sums over mentions of B^3 precision and recall."""
    _, cluster = np.unique(clusters, return_inverse=True)
    _, author = np.unique(authors, return_inverse=True)
    common = np.zeros((cluster.max() + 1, author.max() + 1))
    np.add.at(common, (cluster, author), 1.0)
    squares = common**2
    precision = (squares / common.sum(axis=1, keepdims=True)).sum()
    recall = (squares / common.sum(axis=0, keepdims=True)).sum()
    return float(precision), float(recall)


Draw = Callable[[Sequence[Cluster], np.random.Generator], tuple[int, int]]
"""draw(clusters, rng) -> (place, factors read)."""


def exactly(clusters: Sequence[Cluster], rng: np.random.Generator) -> tuple[int, int]:
    """Draw a cluster; every factor is read."""
    sums = [float(one.log_factors(np.arange(one.size)).sum()) for one in clusters]
    return int((np.array(sums) + rng.gumbel(size=len(sums))).argmax()), sum(one.size for one in clusters)


def racing(delta: float, first: int) -> Draw:
    """Races over clusters whose first batch is ``first`` factors."""

    def draw(clusters: Sequence[Cluster], rng: np.random.Generator) -> tuple[int, int]:
        drawn = racing_clusters(clusters, delta=delta, rng=rng, first=first)
        return int(drawn.rows[0]), drawn.reads

    return draw


def printed(delta: float) -> Draw:
    """Races with the print's widths: after 3 factors, their deviation is taken for that of the cluster.

    Equation 26 is read with variances and the power 1/2, and the second batch as a tenth of the cluster.
    """

    def draw(clusters: Sequence[Cluster], rng: np.random.Generator) -> tuple[int, int]:
        noise = rng.gumbel(size=len(clusters))
        orders = [rng.permutation(one.size) for one in clusters]
        looks = [schedule(one.size, PRINTED_FIRST) for one in clusters]
        last = max(map(len, looks))
        bound = float(ndtri(1.0 - delta / (max(1, len(clusters) - 1) * max(1, last - 1))))
        values, left = [np.empty(0) for _ in clusters], list(range(len(clusters)))
        for look in range(last):
            if len(left) == 1:
                break
            for arm in left:
                some = orders[arm][: looks[arm][min(look, len(looks[arm]) - 1)]]
                if len(some) > len(values[arm]):
                    more = clusters[arm].log_factors(some[len(values[arm]) :])
                    values[arm] = np.concatenate((values[arm], more))
            means = [values[arm].mean() if len(values[arm]) else 0.0 for arm in left]
            totals = np.array([clusters[arm].size * mean for arm, mean in zip(left, means, strict=True)])
            totals += noise[left]
            variances = np.array([_variance(values[arm], clusters[arm].size) for arm in left])
            leader = totals.argmax()
            stay = totals[leader] - totals <= bound * np.sqrt(variances + variances[leader])
            left = [arm for arm, stays in zip(left, stay, strict=True) if stays]
        best = left[0] if len(left) == 1 else left[int(totals[stay].argmax())]
        return best, sum(map(len, values))

    return draw


def _variance(values: Vector, size: int) -> float:
    """Of the estimated sum of a cluster's factors."""
    t = len(values)
    return 0.0 if t == size else (size * float(values.std())) ** 2 / t * (1.0 - (t - 1) / (size - 1))


@dataclass(eq=False)
class Name:
    """The clusters of one name: ``labels`` (n,) and the members of every label in use."""

    mentions: Mentions
    labels: Rows = field(init=False)
    members: dict[int, Rows] = field(init=False)

    def __post_init__(self) -> None:
        self.labels = np.arange(len(self.mentions.authors))
        self.members = {int(label): np.array([label]) for label in self.labels}

    def candidates(self, mention: int, tau: float) -> tuple[list[int], list[Cluster]]:
        """Take a mention out of its cluster; return the labels that it may get, and their clusters.

        The last one is empty.
        """
        label = int(self.labels[mention])
        left = self.members.pop(label)
        if len(left) > 1:
            self.members[label] = left[left != mention]
        labels = [*self.members, self._free()]
        vector, vectors = self.mentions.vectors[mention] * (SCALE / tau), self.mentions.vectors
        shift = SCALE * THRESHOLD / tau

        def cluster(rows: Rows) -> Cluster:
            return Cluster(len(rows), lambda places: vectors[rows[places]] @ vector - shift)

        nobody = np.empty(0, dtype=np.int64)
        return labels, [cluster(self.members.get(one, nobody)) for one in labels]

    def put(self, mention: int, label: int) -> None:
        """Put a mention that was taken out into a cluster."""
        self.labels[mention] = label
        others = self.members.get(label, np.empty(0, dtype=np.int64))
        self.members[label] = np.append(others, mention)

    def _free(self) -> int:
        label = len(self.members)
        while label in self.members:
            label = (label + 1) % (len(self.labels) + 1)
        return label


@dataclass(frozen=True, slots=True, eq=False)
class Run:
    """What was seen after some updates.

    ``everything``: factors that an exact draw would have read. ``wrong``: share of the draws that differ from
    the exact ones, of those that were compared. ``candidates``: least and most clusters to choose among in
    the last sweep, ``largest``: mentions of the largest cluster at the end.
    Shapes: updates, reads, everything, scores (t,).
    """

    updates: Vector
    reads: Vector
    everything: Vector
    scores: Vector
    wrong: float
    candidates: tuple[int, int]
    largest: int


def sample(
    names: Sequence[Mentions], draw: Draw, *, sweeps: int, every: int, seed: int, judge_every: int = 4
) -> Run:
    """Anneal from ``HOTTEST`` to ``COOLEST``; look at F-1 after every ``every`` updates.

    One draw of ``judge_every`` is compared with the exact one of the same Gumbel variables; not counted.
    """
    rng = np.random.default_rng(seed)
    state = [Name(mentions) for mentions in names]
    places = [(number, row) for number, one in enumerate(names) for row in range(len(one.authors))]
    total, last = sweeps * len(places), list[int]()
    wrong = asked = reads = everything = 0
    seen: list[tuple[float, ...]] = [(0, 0, 0, f_1(state))]
    for update in range(total):
        if update % len(places) == 0:
            order = rng.permutation(len(places))
        number, mention = places[order[update % len(places)]]
        tau = HOTTEST * (COOLEST / HOTTEST) ** (update / total)
        labels, clusters = state[number].candidates(mention, tau)
        noise = int(rng.integers(2**62))
        chosen, read = draw(clusters, np.random.default_rng(noise))
        if draw is not exactly and update % judge_every == 0:
            right, _ = exactly(clusters, np.random.default_rng(noise))
            wrong, asked = wrong + (chosen != right), asked + 1
        state[number].put(mention, labels[chosen])
        reads, everything = reads + read, everything + len(state[number].labels) - 1
        if update >= total - len(places):
            last.append(len(clusters))
        if (update + 1) % every == 0:
            seen.append((update + 1, reads, everything, f_1(state)))
    updates, read_by, full_by, scores = np.array(seen, dtype=np.float64).T
    largest = max(len(rows) for one in state for rows in one.members.values())
    return Run(
        updates,
        read_by,
        full_by,
        scores,
        wrong=wrong / asked if asked else 0.0,
        candidates=(min(last), max(last)),
        largest=largest,
    )


def f_1(state: Sequence[Name]) -> float:
    """B^3 F-1 over all names."""
    found = np.array([b_cubed(one.labels, one.mentions.authors) for one in state]).sum(axis=0)
    precision, recall = found / sum(len(one.labels) for one in state)
    return float(2.0 * precision * recall / (precision + recall))
