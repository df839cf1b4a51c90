"""JSON features as numbers of a fixed count, by signed feature hashing (Weinberger et al., ICML 2009).

Personalizer's features are a list of objects. A field whose value is an object is a namespace; all other
fields are in a namespace without a name. Within it the fields of objects have their names joined by dots.

A text or a boolean is a feature "name=value" of weight 1; each item of an array is one of the array's name. A
number v is a feature "name" of weight sign(v) log(1 + |v|). null is none. A feature adds its weight, with a
sign that depends on the feature, to one of the numbers. The numbers of each namespace are scaled to length 1,
so a namespace of many features is no louder than one of few, and then added.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from hashlib import blake2b
from typing import Any

from shortlist_service.errors import Invalid

MOST_NUMBER = 1e300  # of a feature: JSON has integers that no double can be


def hashed(features: Sequence[Mapping[str, Any]], count: int) -> list[float]:
    """``count`` numbers of the features. Their squared length is at most the number of namespaces.

    Raises Invalid: a number is NaN or infinite. Cost: a hash for each value in ``features``.
    """
    by_namespace: dict[str, list[float]] = {}
    for one in features:
        for name, value in one.items():
            namespace, inner = (name, value) if isinstance(value, Mapping) else ("", {name: value})
            numbers = by_namespace.setdefault(namespace, [0.0] * count)
            for feature, weight in _weights("", inner):
                digest = blake2b(f"{namespace}\0{feature}".encode("utf-8", "surrogatepass"), digest_size=8)
                number = int.from_bytes(digest.digest(), "little")
                numbers[(number >> 1) % count] += weight if number & 1 else -weight
    result = [0.0] * count
    for numbers in by_namespace.values():
        if length := math.sqrt(sum(number * number for number in numbers)):
            result = [total + number / length for total, number in zip(result, numbers, strict=True)]
    return result


def _weights(name: str, value: Any) -> Iterator[tuple[str, float]]:
    """Each feature below ``name`` with its weight."""
    if isinstance(value, Mapping):
        for inner, inner_value in value.items():
            yield from _weights(f"{name}.{inner}" if name else inner, inner_value)
    elif isinstance(value, list):
        for item in value:
            yield from _weights(name, item)
    elif isinstance(value, str | bool):
        yield f"{name}={str(value).lower() if isinstance(value, bool) else value}", 1.0
    elif isinstance(value, int | float):
        if isinstance(value, float) and not math.isfinite(value):
            raise Invalid("a number of the features must be finite")
        size = math.log1p(min(abs(value), MOST_NUMBER))
        yield name, size if value > 0 else -size
