"""Plays of the whole service: steps drawn from a seed, in all or in one direction.

A step is a method that ``rule`` marks, with how each of its arguments is drawn. A play in a direction
(``Focus``) has some steps and some draws alone: a mistake is met soon where all is drawn from what it breaks.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

from service_pools import POOLS

T = TypeVar("T")


@dataclass(frozen=True)
class Focus:
    """``steps``: the names of those that are played, one that comes twice twice as often; all if none.

    ``pools``: of what is drawn from a pool, the condition that it fulfils. ``first``: the names of the steps
    that come first, in this order.
    """

    steps: Sequence[str] = ()
    pools: Mapping[str, Callable[[Any], bool]] = field(default_factory=dict)
    first: Sequence[str] = ()

    def pool(self, name: str) -> Sequence[Any]:
        """What is drawn of a pool."""
        fits = self.pools.get(name)
        found = POOLS[name] if fits is None else [each for each in POOLS[name] if fits(each)]
        assert found, f"nothing of {name} is in focus"
        return found


class Played(Protocol):
    """What is played: it draws by ``rng``, from ``pools`` and from ``decisions`` that were made."""

    rng: random.Random
    pools: Mapping[str, Sequence[Any]]
    decisions: list[Any]

    def begin(self) -> None: ...
    def end(self) -> None: ...


Draw = Callable[[Any], Any]


def rule(**draws: Draw) -> Callable[[T], T]:
    """Mark a method as a step. ``draws``: how each of its arguments is drawn, of the one that is played."""

    def mark(method: T) -> T:
        method.draws = draws  # type: ignore[attr-defined]
        return method

    return mark


def one_of(items: Sequence[Any]) -> Draw:
    return lambda played: played.rng.choice(items)


def of(pool: str) -> Draw:
    return lambda played: played.rng.choice(played.pools[pool])


def some(draw: Draw, *counts: int) -> Draw:
    """A list of one of these lengths."""
    return lambda played: [draw(played) for _ in range(played.rng.choice(counts))]


def both(one: Draw, other: Draw) -> Draw:
    return lambda played: (one(played), other(played))


def decision(played: Played) -> Any:
    """One of the last ones more often than one of before; None: there is none yet."""
    made = played.decisions
    if not made:
        return None
    return played.rng.choice(made[-6:] if played.rng.random() < 0.6 else made)


def steps_of(kind: type) -> dict[str, Mapping[str, Draw]]:
    """Every step of a kind, in the order of their names, with how its arguments are drawn."""
    return {
        name: method.draws for name in sorted(dir(kind)) if hasattr(method := getattr(kind, name), "draws")
    }


def play(
    make: Callable[[random.Random, Mapping[str, Sequence[Any]]], Played],
    seeds: Iterable[int],
    *,
    steps: int,
    focus: Focus,
) -> None:
    """Play so many steps for each seed, up to the first that differs from the model: AssertionError.

    The error names the seed and the steps. The steps depend on the seed, on what the service answers, and on
    nothing else.
    """
    pools = {name: focus.pool(name) for name in POOLS}
    for seed in seeds:
        rng, taken = random.Random(seed), list[str]()
        played = make(rng, pools)
        draws = steps_of(type(played))
        names = [*focus.first, *rng.choices(focus.steps or [*draws], k=steps - len(focus.first))]
        try:
            _run(played, [(name, draws[name]) for name in names], taken)
        except BaseException as error:
            error.add_note("\n".join((f"seed {seed}, after", *taken)))
            raise


def _run(played: Played, steps: Iterable[tuple[str, Mapping[str, Draw]]], taken: list[str]) -> None:
    try:
        played.begin()
        for name, draws in steps:
            drawn = {argument: draw(played) for argument, draw in draws.items()}
            taken.append(f"  {name}({', '.join(f'{key}={value!r}' for key, value in drawn.items())})")
            getattr(played, name)(**drawn)
    finally:
        played.end()
