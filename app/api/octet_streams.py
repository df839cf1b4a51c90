"""Bodies as JSON, or as numbers: ``application/octet-stream``, float32, little-endian, row after row.

All other fields of a JSON body are query parameters then, and ``n`` and ``dim``: the numbers of rows and
columns.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

import numpy as np
from fastapi import Request
from numpy.typing import NDArray

from app.api.problems import Part
from app.api.strict_json import StrictModel, body_of, content_type, numeral, read_body
from app.platform.errors import Invalid

OCTETS = "application/octet-stream"

Float32s = NDArray[np.float32]
M = TypeVar("M", bound=StrictModel)
_NUMBER = r"-?[0-9]{1,20}(\.[0-9]{1,20})?([eE][-+]?[0-9]{1,3})?"
WHOLE = numeral(r"[0-9]{1,19}", "must be a whole number")
REAL = numeral(_NUMBER, "must be a number")
REALS = numeral(f"{_NUMBER}(,{_NUMBER})*", "must be numbers between commas")


async def body_or_octets(request: Request, model: type[M]) -> M | bytes:
    """The body: a model, or the bytes of an octet-stream. Raises Invalid, TooLarge."""
    if content_type(request) == OCTETS:
        return await body_of(request)
    for name in request.query_params:
        raise Invalid("must be sent in the JSON body, not in the query", path=(Part.QUERY, name))
    return await read_body(model, await body_of(request, model))


def documented(model: type[StrictModel]) -> dict[str, Any]:
    """The OpenAPI description of such a body: the framework does not see it in the signature."""
    return {
        "requestBody": {
            "required": True,
            "description": f"As JSON at most {model.max_bytes:,} bytes.",
            "content": {
                "application/json": {"schema": model.model_json_schema()},
                OCTETS: {"schema": {"type": "string", "format": "binary"}},
            },
        }
    }


def shape(n: int | None, dim: int | None) -> tuple[int, int]:
    """Both of them. Raises Invalid."""
    if n is None or dim is None:
        missing = "n" if n is None else "dim"
        raise Invalid("is required with an octet-stream", path=(Part.QUERY, missing))
    return n, dim


def numbers(data: bytes, counts: Sequence[int], what: str) -> Float32s:
    """The numbers of a body, one of ``counts`` of them: ``what`` they are. Raises Invalid."""
    if len(data) not in [4 * count for count in counts]:
        sizes = " or ".join(str(4 * count) for count in counts)
        raise Invalid(f"must be {what}: {sizes} bytes, not {len(data)}", path=())
    return np.frombuffer(data, dtype="<f4").astype(np.float32, copy=False)


def check_magnitude(values: NDArray[np.floating[Any]], most: float) -> None:
    """Raise Invalid, as a number in JSON would."""
    largest = max(float(values.max()), -float(values.min()))
    if not np.isfinite(largest):
        raise Invalid("every number must be finite", path=())
    if largest > most:
        raise Invalid(f"no number may be larger than {most:.0f} in magnitude", path=())
