"""Whether a request for an event is the one that was made before: by a digest of all that it asks for."""

from __future__ import annotations

from hashlib import blake2b
from typing import TYPE_CHECKING

import msgspec

from app.services.bandits.encoding import Numbers32

if TYPE_CHECKING:
    from app.services.choosing.choosing import ChooseRequest

DIGEST_BYTES = 16


def digest_of(request: ChooseRequest, context: Numbers32 | None) -> bytes:
    """16 bytes that are the same for the same request; ``context``: as it was encoded.

    The order of exclusions and of the parts of a filter does not matter. Key and event are not in it: choices
    are kept by them. Cost: some microseconds, and a millisecond for 10,000 exclusions.
    """
    arm_filter = request.arm_filter
    asked = (
        request.k,
        sorted(request.exclude),
        request.seed,
        request.activate,
        request.arms,
        None if arm_filter is None else arm_filter.key,
        request.rules.pins,
        request.rules.at_most,
        None if context is None else context.tobytes(),
    )
    return blake2b(msgspec.msgpack.encode(asked), digest_size=DIGEST_BYTES).digest()
