"""The Markov chain of the ARCH experiment: the order of the model and its parameters, exactly or by races.

Notation
    q, x_j      order that is chosen, parameters of the model of order j (all models have some)
    pi~_j       adjusted prior of order j
    psi_j       pseudo-prior of x_j: the Laplace approximation of its posterior

One iteration draws x_j from psi_j for every j but q; then q, with probability proportional to
pi~_q p(x_q) / psi_q(x_q) p(r | x_q, q); then moves x_q by one step of Langevin dynamics, with a rejection
step of Metropolis and Hastings. ``Exact`` reads every return. ``Races`` reads some: q is a race of six arms,
the rejection a race of two, and the gradient is that of a batch. The same batch proposes the way back, so the
rejection is that of Metropolis and Hastings for every batch.

Source: Chen and Ghahramani, "Scalable Discrete Sampling as a Multi-Armed Bandit Problem", Equation 25;
Carlin and Chib 1995; Welling and Teh 2011.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from shortlist.sampling.control_variates import controlled
from shortlist.sampling.factors import Factors
from shortlist.sampling.metropolis_hastings import metropolis_hastings_step
from shortlist.sampling.racing_normal import racing_normal
from shortlist.types import Matrix, Rows, Vector
from studies.experiments.arch_model import (
    Laplace,
    Series,
    gradient,
    log_likelihoods,
    log_prior,
    prior_gradient,
)
from studies.experiments.arch_proxy import Expansion, proxy

DELTA = 0.05
BATCH = 500
ACCEPTED = 0.36  # the share of steps that the print aims at
ANNEALING = 100.0


class Decisions(Protocol):
    """How the chain decides; ``evaluations`` counts likelihoods and gradients of single returns."""

    evaluations: int

    def model(self, states: Sequence[Vector], weights: Vector, seed: int) -> int:
        """Draw a model. ``weights`` (models,): log of everything but the likelihood."""

    def accept(self, model: int, pair: Sequence[Vector], weights: Vector, seed: int) -> bool:
        """Whether the second state is accepted. ``weights`` (2,): log prior and log proposal."""

    def batch(self, rng: np.random.Generator) -> Rows | slice:
        """The times whose gradients propose a move."""


@dataclass(eq=False)
class Exact:
    """Every likelihood is evaluated."""

    series: Series
    evaluations: int = 0

    def model(self, states: Sequence[Vector], weights: Vector, seed: int) -> int:
        self.evaluations += len(states) * self.series.size
        noise = np.random.default_rng(seed).gumbel(size=len(states))
        return int((self._sums(states) + weights + noise).argmax())

    def accept(self, model: int, pair: Sequence[Vector], weights: Vector, seed: int) -> bool:  # noqa: ARG002 - of the protocol
        # Nothing is counted: both likelihoods come with the gradients, which were taken at both states.
        first, second = self._sums(pair) + weights
        return bool(second - first > -np.random.default_rng(seed).standard_exponential())

    def batch(self, rng: np.random.Generator) -> Rows | slice:  # noqa: ARG002 - of the protocol
        return slice(None)

    def _sums(self, states: Sequence[Vector]) -> Vector:
        return np.array([log_likelihoods(self.series, x, slice(None)).sum() for x in states])


@dataclass(eq=False)
class Races:
    """Outliers are always evaluated, the other returns are raced over, with control variates.

    ``inside``, ``outside`` and ``expansions`` are those of ``arch_proxy.binned``.
    """

    series: Series
    inside: Rows
    outside: Rows
    expansions: Sequence[Expansion]
    delta: float = DELTA
    evaluations: int = 0
    _raced: Series = field(init=False)

    def __post_init__(self) -> None:
        self._raced = Series(self.series.returns[self.inside], self.series.squares[self.inside])

    def model(self, states: Sequence[Vector], weights: Vector, seed: int) -> int:
        factors, constants = self.factors(self.expansions, states)
        drawn = racing_normal(
            factors,
            delta=self.delta,
            rng=np.random.default_rng(seed),
            log_prior=weights + constants + self._outliers(states),
        )
        self.evaluations += drawn.reads
        return int(drawn.rows[0])

    def accept(self, model: int, pair: Sequence[Vector], weights: Vector, seed: int) -> bool:
        factors, constants = self.factors([self.expansions[model]] * 2, pair)
        step = metropolis_hastings_step(
            factors,
            log_prior=constants + self._outliers(pair),
            log_proposal=weights,
            delta=self.delta,
            rng=np.random.default_rng(seed),
        )
        self.evaluations += step.reads
        return step.accepted

    def batch(self, rng: np.random.Generator) -> Rows | slice:
        return rng.integers(self.series.size, size=BATCH)

    def plain(self, states: Sequence[Vector]) -> Factors:
        """The likelihoods of the returns that are raced over."""

        def some(arms: Rows, times: Rows) -> Matrix:
            return np.stack([log_likelihoods(self._raced, states[arm], times) for arm in arms])

        return Factors(len(states), self._raced.size, some)

    def factors(self, expansions: Sequence[Expansion], states: Sequence[Vector]) -> tuple[Factors, Vector]:
        """The same without their proxies, and what has to be added to the log prior."""
        return controlled(self.plain(states), proxy(expansions, self._raced, states))

    def _outliers(self, states: Sequence[Vector]) -> Vector:
        self.evaluations += len(states) * len(self.outside)
        return np.array([log_likelihoods(self.series, x, self.outside).sum() for x in states])


@dataclass(eq=False)
class Chain:
    """``priors`` (models,) are the log pi~, ``steps`` (models,) the step sizes of the moves.

    ``judge``, if any, decides as well, with the same random numbers: ``wrong`` counts how often its decisions
    on (models, moves) differ.
    """

    series: Series
    pseudo: Sequence[Laplace]
    decisions: Decisions
    rng: np.random.Generator
    priors: Vector
    steps: Vector
    judge: Exact | None = None
    model: int = 0
    time: int = 0
    accepted: int = 0
    wrong: Vector = field(default_factory=lambda: np.zeros(2))

    def __post_init__(self) -> None:
        self._states = [laplace.mode for laplace in self.pseudo]

    def adapt(self) -> None:
        """One iteration, after which log pi~ of the model falls (Wang and Landau), and steps are tuned."""
        moved = self.step()
        self.priors[self.model] -= 1.0 / (1.0 + self.time / ANNEALING)
        self.priors -= self.priors.max()
        self.steps[self.model] *= np.exp((moved - ACCEPTED) / np.sqrt(1.0 + self.time / 10.0))

    def step(self) -> bool:
        """One iteration; whether the move was accepted."""
        self.time += 1
        self._states = [
            x if place == self.model else laplace.draw(self.rng)
            for place, (x, laplace) in enumerate(zip(self._states, self.pseudo, strict=True))
        ]
        # DEVIATION (Eq. 25): the print leaves out the prior of x_q over its pseudo-prior.
        weights = self.priors + [
            log_prior(x) - laplace.log_density(x)
            for x, laplace in zip(self._states, self.pseudo, strict=True)
        ]
        seed = int(self.rng.integers(2**62))
        self.model = self.decisions.model(self._states, weights, seed)
        if self.judge is not None:
            self.wrong[0] += self.judge.model(self._states, weights, seed) != self.model
        return self._move()

    def _move(self) -> bool:
        laplace, step, state = self.pseudo[self.model], self.steps[self.model], self._states[self.model]
        batch = self.decisions.batch(self.rng)
        forth = self.rng.standard_normal(len(state))
        proposed = self._drift(state, batch) + step * laplace.root @ forth
        back = np.linalg.solve(laplace.root, state - self._drift(proposed, batch)) / step
        weights = np.array([log_prior(state), log_prior(proposed)])
        weights -= 0.5 * np.array([forth @ forth, back @ back])
        seed = int(self.rng.integers(2**62))
        pair = state, proposed
        moved = self.decisions.accept(self.model, pair, weights, seed)
        if self.judge is not None:
            self.wrong[1] += self.judge.accept(self.model, pair, weights, seed) != moved
        self._states[self.model] = proposed if moved else state
        self.accepted += moved
        return moved

    def _drift(self, x: Vector, batch: Rows | slice) -> Vector:
        """Where Langevin dynamics lead on average, preconditioned by the Laplace approximation."""
        count = self.series.size if isinstance(batch, slice) else len(batch)
        self.decisions.evaluations += count
        slope = gradient(self.series, x, batch) * (self.series.size / count) + prior_gradient(x)
        root, step = self.pseudo[self.model].root, self.steps[self.model]
        found: Vector = x + 0.5 * step**2 * (root @ (root.T @ slope))
        return found
