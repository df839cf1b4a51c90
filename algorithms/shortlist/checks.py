"""Checks of arguments for all algorithms. Each raises an error that names the argument."""

from __future__ import annotations

import dataclasses
import math
import numbers
from collections.abc import Collection, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from shortlist.errors import InvalidParameter, InvalidShape, NonFinite

# Of a promise that may fail with probability delta. Its shares among billions of events are numbers still.
MIN_DELTA = 1e-100


def array(name: str, given: object) -> None:
    """Raise InvalidShape for what is no array of numpy or scipy, such as a list."""
    if not hasattr(given, "ndim"):
        message = (
            f"{name} must be an array of numpy, not of type {type(given).__name__}: numpy.array makes one"
        )
        raise InvalidShape(message, argument=name)


def shape(name: str, given: NDArray[np.generic], expected: Sequence[int | None]) -> None:
    """Raise InvalidShape unless ``given`` is an array of the ``expected`` shape.

    There, None is any length.
    """
    array(name, given)
    if given.ndim != len(expected) or any(
        want is not None and have != want for have, want in zip(given.shape, expected, strict=True)
    ):
        lengths = ", ".join("any" if length is None else str(length) for length in expected)
        wanted = lengths + "," if len(expected) == 1 else lengths  # as numpy writes a shape
        raise InvalidShape(f"{name} must have shape ({wanted}), not {given.shape}", argument=name)


def finite(name: str, array: NDArray[np.floating]) -> None:
    """Raise NonFinite if ``array`` holds NaN or an infinity."""
    if not np.isfinite(array).all():
        raise NonFinite(f"{name} must be finite", argument=name)


def in_range(
    name: str,
    value: float,
    *,
    above: float | None = None,
    below: float | None = None,
    least: float | None = None,
    most: float | None = None,
    whole: bool = False,
) -> None:
    """Raise InvalidParameter unless above < value < below, least <= value <= most, and it is finite.

    Absent bounds are not checked. ``whole``: only integers are allowed, and 2.0 is none.
    """
    given: object = value
    if not isinstance(given, numbers.Integral if whole else numbers.Real):
        raise InvalidParameter(f"{name} must be {'an integer' if whole else 'a number'}", argument=name)
    good = (
        math.isfinite(value)
        and (above is None or value > above)
        and (below is None or value < below)
        and (least is None or value >= least)
        and (most is None or value <= most)
    )
    if not good:
        bounds = [
            f"{sign} {bound:g}"
            for sign, bound in ((">", above), ("<", below), (">=", least), ("<=", most))
            if bound is not None
        ]
        raise InvalidParameter(f"{name} must be {' and '.join(bounds) or 'finite'}", argument=name)


def generator(rng: np.random.Generator) -> None:
    """Raise InvalidParameter for what draws nothing, such as a seed."""
    if not hasattr(rng, "random"):
        message = (
            f"rng must be a generator, not of type {type(rng).__name__}: numpy.random.default_rng makes one"
        )
        raise InvalidParameter(message, argument="rng")


def options(settings: type, given: Mapping[str, object], *, but: Collection[str]) -> None:
    """Raise InvalidParameter for an option unknown to a dataclass, and for a missing required one.

    ``but``: fields that are no options.
    """
    fields = {field.name: field for field in dataclasses.fields(settings) if field.name not in but}
    for name in given:
        if name not in fields:
            raise InvalidParameter(f"{name} is no option here: {', '.join(fields)}", argument=name)
    for name, field in fields.items():
        if field.default is dataclasses.MISSING and name not in given:
            raise InvalidParameter(f"{name} must be given", argument=name)


def delta(value: float) -> None:
    """Raise InvalidParameter unless MIN_DELTA <= value < 1, as the probability that a promise fails."""
    in_range("delta", value, least=MIN_DELTA, below=1.0)
