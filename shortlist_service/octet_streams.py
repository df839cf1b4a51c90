"""Bodies of many numbers: JSON, or ``application/octet-stream`` of little-endian float32.

    body = await body_or_octets(request, NumbersBody)
    if isinstance(body, bytes):
        matrix = numbers(body, [n * dim], "n x dim numbers").reshape(*shape(n, dim))

What a JSON body has beside its numbers are query parameters then, of ``WHOLE`` and ``REAL``, as ``n`` and
``dim`` are. ``documented`` is what /openapi.json says of such a body.
"""

from app.api.octet_streams import (
    REAL,
    WHOLE,
    body_or_octets,
    check_magnitude,
    documented,
    numbers,
    shape,
)

__all__ = ["REAL", "WHOLE", "body_or_octets", "check_magnitude", "documented", "numbers", "shape"]
