"""Bilinear rewards: how good an arm is depends on the context, and a decision stays one inner-product search.

Notation
    d, m            dimension of the features of an arm, of the context
    x, u            features of an arm (d,), context of a decision (m,)
    P               directions (p, d): the coordinates of x that interact with the context are P x
    phi             [x ; (P x) kron u] (D,), D = d + p m; entry d + i m + j is (P x)_i u_j
    theta, W        the parameter of phi: (d,), and (p, m) row by row
    M               [I, P^T (I kron u^T)] (d, D): x.(M [theta ; W]) = phi.[theta ; W] for every x
    V, root         precision of ridge regression on phi (D, D), root root^T = V^-1; see ``ridge``

The mean reward of x in context u is x.theta + (P x)^T W u = x.(theta + P^T W u). So for one context the arms
are searched with a query of d numbers, in the index of their plain features. With (theta, W) from
N(estimate, V^-1), that query is from N(M estimate, M V^-1 M^T): ``given``. Last coordinates besides the D,
as that of ``shifted_rewards``, are some of the query as well: M becomes blockdiag(M, I). ``beside`` says how
many there are; None: one or none, as the numbers tell.

Drawing D numbers and mapping them by M costs D^2 multiply-adds, which read every number of the root once. A
factor (d, d) of M V^-1 M^T for the draw has to read them too, and to be made besides: at D = 272 and d = 32
it takes three times as long, at D = 1,024 one and a half times (docs/context.md). So M is applied to what was
drawn. Who asks for the estimate alone pays for no root.

Source: Li et al., "A Contextual-Bandit Approach to Personalized News Article Recommendation" (2010), whose
hybrid model learns from outer products of the features of users and articles. Here they are those of u and
P x.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from shortlist import checks
from shortlist.errors import InvalidShape
from shortlist.linear.ridge import Posterior
from shortlist.types import Matrix, Vector


def directions(gram: Matrix, p: int) -> Matrix:
    """Return the first ``p`` principal directions of arms: the rows P for which sum |x - P^T P x|^2 is least.

    They are eigenvectors of the second moments about zero, not about the mean: the model has P x, without the
    mean subtracted. So the first direction is near the common part of all arms, and the context can move the
    rewards of all arms together. The sign of a row is such that its first entry of largest magnitude is
    positive.

    Nothing is random: the same gram gives the same bits on the same machine. Where eigenvalues are equal, any
    rotation of their directions would do; so keep what was returned.

    Shapes: gram (d, d), the sum of x x^T -> (p, d), orthonormal rows. Cost: O(d^3).
    Raises: InvalidShape, NonFinite, InvalidParameter (p < 1, p > d).
    """
    dim = len(gram)
    checks.shape("gram", gram, (dim, dim))
    checks.finite("gram", gram)
    checks.in_range("p", p, least=1, most=dim)
    vectors = np.linalg.eigh(gram)[1][:, ::-1][:, :p].T
    largest = np.abs(vectors).argmax(axis=1)
    signs = np.where(vectors[np.arange(p), largest] < 0.0, -1.0, 1.0)
    return np.ascontiguousarray(vectors * signs[:, None])


def phi(features: Matrix, directions: Matrix | None, contexts: NDArray[np.floating]) -> Matrix:
    """Return [x ; (P x) kron u] of every row.

    ``directions`` is P, None: the identity. ``contexts`` is a context for each row, or one for all.
    Shapes: features (n, d), directions (p, d), contexts (n, m) or (m,) -> (n, D). Raises: InvalidShape.
    """
    checks.shape("features", features, (None, None))
    count, dim = features.shape
    interacting = features
    if directions is not None:
        checks.shape("directions", directions, (None, dim))
        interacting = features @ directions.T
    if contexts.ndim != 1:
        checks.shape("contexts", contexts, (count, None))
    rows = np.empty((count, dim + interacting.shape[1] * contexts.shape[-1]))
    rows[:, :dim] = features
    products = interacting[:, :, None] * contexts[..., None, :].astype(np.float64)
    rows[:, dim:] = products.reshape(count, -1)
    return rows


@dataclass(frozen=True, slots=True, eq=False)
class Given:
    """The posterior of the query for one context: N(M estimate, M V^-1 M^T). It is a ``ridge.Posterior``.

    ``whole``        of (theta, W), and of the last coordinates if there are some
    ``theta``        M estimate (d,), longer by the last coordinates
    """

    whole: Posterior
    theta: Vector
    directions: Matrix | None
    context: Vector
    beside: int | None = None

    @property
    def ridge(self) -> float:
        """The ridge of V."""
        return self.whole.ridge

    @property
    def sigma(self) -> float:
        """The noise of rewards."""
        return self.whole.sigma

    @property
    def unit(self) -> float:
        """The unit of the learner, for any context."""
        return self.whole.unit

    @property
    def ratio(self) -> float:
        """The ratio of the learner, for any context."""
        return self.whole.ratio

    @property
    def root(self) -> Matrix:
        """M root, whose product with its transpose is M V^-1 M^T. Shape: (d, D). Cost: D^2 + p d D."""
        return _mapped(self.whole.root, self.directions, self.context, self.beside)

    def noise(self, rng: np.random.Generator) -> Vector:
        """A draw from N(0, M V^-1 M^T). Shape: -> (d,). Cost: D normal draws, D^2 + p (d + m)."""
        return _mapped(self.whole.noise(rng)[:, None], self.directions, self.context, self.beside)[:, 0]


def given(
    posterior: Posterior,
    directions: Matrix | None,
    context: NDArray[np.floating],
    beside: int | None = None,
) -> Given:
    """Return the posterior of the query theta + P^T W u, from that of (theta, W).

    Every algorithm that takes a posterior then works on plain features. Nothing is random here; what is drawn
    later depends on the generator alone. ``directions`` is P, None: the identity. ``context`` is u.

    Shapes: posterior of D + b, directions (p, d), context (m,), m >= 1 -> posterior of d + b, b = ``beside``.
    Cost: p (d + m). Raises: InvalidShape.
    """
    checks.shape("context", context, (None,))
    wide = context.astype(np.float64)
    theta = _mapped(posterior.theta[:, None], directions, wide, beside)[:, 0]
    theta.setflags(write=False)
    return Given(posterior, theta, directions, wide, beside)


def queries(
    theta: Vector, directions: Matrix | None, contexts: NDArray[np.floating], beside: int | None = None
) -> Matrix:
    """Return the estimates of ``given`` for many contexts: theta + P^T W u of every row u.

    ``theta`` are all numbers that a learner estimates; last coordinates stay the last ones.
    Shapes: theta (D + b,), directions (p, d), contexts (n, m), m >= 1 -> (n, d + b), b = ``beside``.
    Cost: n p (d + m). Raises: InvalidShape.
    """
    checks.shape("contexts", contexts, (None, None))
    arm_part, shared = weights(theta, directions, contexts.shape[1], beside)
    turned = contexts.astype(np.float64) @ shared.T
    if directions is not None:
        turned = turned @ directions
    all_queries = np.tile(arm_part, (len(contexts), 1))
    all_queries[:, : turned.shape[1]] += turned
    return all_queries


def weights(
    theta: Vector, directions: Matrix | None, m: int, beside: int | None = None
) -> tuple[Vector, Matrix]:
    """Return (theta, W) of the numbers that a learner estimates; last coordinates stay at the end of theta.

    Shapes: (D + b,) -> (d + b,), (p, m), b = ``beside``. Raises: InvalidShape.
    """
    dim, p = _sizes(len(theta), directions, m, beside)
    both = theta[dim : dim + p * m]
    return np.concatenate((theta[:dim], theta[dim + p * m :])), both.reshape(p, m)


def _mapped(numbers: Matrix, directions: Matrix | None, context: Vector, beside: int | None) -> Matrix:
    """M, and the identity for last coordinates, times each column. Shapes: (D, n) -> (d, n)."""
    m = len(context)
    dim, p = _sizes(len(numbers), directions, m, beside)
    end = dim + p * m
    shared = context @ numbers[dim:end].reshape(p, m, -1)
    if directions is not None:
        shared = directions.T @ shared
    shared += numbers[:dim]
    return shared if end == len(numbers) else np.concatenate((shared, numbers[end:]))


def _sizes(numbers: int, directions: Matrix | None, m: int, beside: int | None) -> tuple[int, int]:
    """(d, p), where there are so many numbers. Raises InvalidShape."""
    if directions is None:
        dim = p = (numbers - (beside or 0)) // (m + 1)
    else:
        checks.shape("directions", directions, (None, None))
        p, dim = directions.shape
    left = numbers - dim - p * m
    if m < 1 or not (0 <= left <= 1 if beside is None else left == beside):
        raise InvalidShape("posterior, directions and context must be of one bandit", argument="context")
    return dim, p
