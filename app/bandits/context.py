"""From a context to numbers: the joint features of a learner, and the query for the arms.

Notation, as in ``shortlist.linear.bilinear``
    d, m, p         dimension of the arms, of the encoded context u, number of interacting directions
    D               d + p m, numbers of a learner; those of ``match`` come after them, and the one of an
    intercept is the last
"""

from __future__ import annotations

from dataclasses import dataclass

import msgspec
import numpy as np
from numpy.typing import NDArray

from app.bandits.settings import BanditRecord
from app.indexes.snapshot import Snapshot
from app.platform.errors import Invalid
from app.records import encoding
from app.records.encoding import Encoding, Numbers32
from app.records.records import bytes_to_vector, vector_to_bytes
from shortlist.linear import bilinear
from shortlist.linear.ridge import Posterior
from shortlist.types import Matrix, Vector

MAX_CONTEXT_LEARNER = 1_024
MAX_CONTEXT_KEY_LEARNER = 256
MOST_PRODUCTS = 20_000_000_000  # of two features, in the second moments of a catalogue: about a second
BLOCK_NUMBERS = 1 << 18


@dataclass(frozen=True, slots=True, eq=False)
class Context:
    """The context of a bandit. ``directions`` is P (p, d); None: all coordinates interact.

    ``beside``: how many numbers of a learner come after the D, in which the context has no part.
    """

    encoding: Encoding
    directions: Matrix | None
    beside: int

    @classmethod
    def of(cls, record: BanditRecord, dim: int) -> Context | None:
        """None: the bandit has no context. ``dim`` is d."""
        if record.context is None:
            return None
        directions = None
        if record.directions is not None:
            directions = bytes_to_vector(record.directions).reshape(-1, dim)
        return cls(Encoding(record.context), directions, numbers_beside(record))

    def more_numbers(self, dim: int) -> int:
        """The learner's numbers besides theta: p m of them."""
        return (dim if self.directions is None else len(self.directions)) * self.encoding.dim

    def joint_features(self, features: Vector, context: Numbers32 | None) -> Vector:
        """The features for a learner: [x ; (P x) kron u]. Without a context: one of zeros. Shapes: (d,) ->
        (D,).
        """
        if context is None:
            context = np.zeros(self.encoding.dim, dtype=np.float32)
        joint: Vector = bilinear.phi(features[None], self.directions, context)[0]
        return joint

    def given(self, posterior: Posterior, context: Numbers32) -> Posterior:
        """The posterior of the query in this context."""
        return bilinear.given(posterior, self.directions, context, self.beside)

    def queries(self, theta: Vector, contexts: NDArray[np.floating]) -> Matrix:
        """The estimates of ``given`` in many contexts. Shapes: (D,), (n, m) -> (n, d)."""
        return bilinear.queries(theta, self.directions, contexts, self.beside)

    def weights(self, theta: Vector) -> tuple[Vector, Matrix]:
        """(theta, W) of all numbers of a learner. Shapes: (D,) -> (d,), (p, m)."""
        return bilinear.weights(theta, self.directions, self.encoding.dim, self.beside)


def match_numbers(record: BanditRecord) -> int:
    """The number of a request's numbers for an arm."""
    return 0 if record.match is None else encoding.MatchEncoding(record.match).dim


def numbers_beside(record: BanditRecord) -> int:
    """The number of a learner's numbers for ``match`` and for the intercept."""
    return match_numbers(record) + record.intercept


def check_form(context: object) -> object:
    """The context of a request. What is in it, ``Context`` checks. Raises ValueError."""
    if context is None or isinstance(context, list | dict):
        return context
    raise ValueError("must be a list of numbers, or an object of named fields")


def completed(record: BanditRecord) -> BanditRecord:
    """The record of a requested bandit, with all parts of its context. Raises Invalid."""
    if record.context is None:
        if record.interactions is not None:
            raise Invalid("interactions needs a context", path=("interactions",))
        return record
    interactions = "all" if record.interactions is None else record.interactions
    rule = encoding.completed(record.context)
    return msgspec.structs.replace(record, context=rule, interactions=interactions)


def check_size(record: BanditRecord, dim: int) -> None:
    """Raise Invalid when a learner has too many numbers, or more directions than ``dim``, which is d.

    Directions that a move has mapped may be more than ``dim``.
    """
    if record.context is None:
        return
    m, beside = Encoding(record.context).dim, match_numbers(record)
    most = MAX_CONTEXT_KEY_LEARNER if record.scope == "per_key" else MAX_CONTEXT_LEARNER
    directions = 0 if record.directions is None else len(bytes_to_vector(record.directions)) // dim
    largest = min(max(dim, directions), (most - dim - beside) // m)
    of_match = f" + {beside}" if beside else ""
    p = directions or (dim if record.interactions == "all" else record.interactions)
    if largest < 1:
        raise Invalid(
            f"a context of {m} numbers does not fit: with one interaction a learner would have {dim} + {m}"
            f"{of_match} numbers, {most:,} at most with scope {record.scope}",
            path=("context",),
        )
    if not isinstance(p, int) or p <= largest:
        return
    if p > max(dim, directions):
        reason = f"there are only {dim} directions in the catalogue"
    else:
        numbers = f"{dim} + {p} x {m}{of_match} = {dim + p * m + beside:,} numbers"
        reason = f"a learner would have {numbers}, {most:,} at most with scope {record.scope}"
    raise Invalid(f"{reason}; the largest interactions that fits is {largest}", path=("interactions",))


def with_directions(record: BanditRecord, arms: Snapshot) -> BanditRecord:
    """The record with its requested directions of the arms. Cost and errors: ``directions_of``."""
    directions = None
    if isinstance(record.interactions, int):
        directions = vector_to_bytes(directions_of(arms, record.interactions))
    return msgspec.structs.replace(record, directions=directions)


def directions_of(
    arms: Snapshot, p: int, *, most_products: int = MOST_PRODUCTS, block_numbers: int = BLOCK_NUMBERS
) -> Matrix:
    """The first ``p`` principal directions of the arms, of an even sample of them if they are very many.

    Shape: -> (p, d). Cost: n d^2, at most ``most_products``. Raises Invalid: there are no arms yet.
    ``block_numbers``: of arms read at a time.
    """
    rows = arms.eligible()
    if not len(rows):
        raise Invalid(
            'the catalogue has no arms yet, so it has no directions: add arms first, or ask for "all"',
            path=("interactions",),
        )
    dim = arms.table.dim
    rows = rows[:: -(-len(rows) * dim**2 // most_products)]
    gram = np.zeros((dim, dim))
    block = max(1, block_numbers // dim)
    for start in range(0, len(rows), block):
        features = arms.features_of(rows[start : start + block]).astype(np.float64, copy=False)
        gram += features.T @ features
    return bilinear.directions(gram, p)
