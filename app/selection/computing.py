"""The place of a choice's computation, the event loop or a thread, and the generators for its draws.

A short choice runs in the event loop, since a thread would take longer to start; a long one in a thread. The
draws of a choice are a function of its seed, so explanations can repeat the choice:

    seed below ``DRAWN``    from the request, mixed with the bandit and the key, so that two keys with one
                            seed do not share their noise
    from ``DRAWN`` on       drawn for a logged choice. All are different, so nothing is mixed in
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
from numpy.random.bit_generator import ISeedSequence
from numpy.typing import NDArray

from app.catalogues.learner_snapshot import LearnerSnapshot
from app.platform.pools import REQUESTS
from app.selection.selection import SelectionRequest

DRAWN = 2**63  # beyond all that a request may ask for
T = TypeVar("T")
INLINE_US = 2_000.0
_LIMITED_US = 0.05  # for an arm, and for each value of a limited field
_PLACE_US = 15.0  # for each arm that is drawn, or taken within limits


class _Digest(ISeedSequence):
    """The state of a generator as 32 bytes. Numpy would hash any other seed once more, which takes longer."""

    def __init__(self, digest: bytes) -> None:
        self._digest = digest

    def generate_state(self, n_words: int, dtype: Any = np.uint32) -> NDArray[Any]:
        return np.frombuffer(self._digest, dtype)[:n_words]


def draw_seed() -> int:
    return DRAWN | random.getrandbits(63)


def generator(seed: int, bandit: str, key: str | None) -> np.random.Generator:
    """The generator of a seed. Cost: about 20 microseconds, and a few for a drawn seed."""
    if seed >= DRAWN:
        digest = hashlib.blake2b(seed.to_bytes(8, "little"), digest_size=32).digest()
        state: Any = _Digest(digest)  # numpy takes it, its hints do not
        return np.random.Generator(np.random.PCG64(state))
    digest = hashlib.blake2b(f"{seed}/{bandit}/{key}".encode(), digest_size=16).digest()
    return np.random.default_rng(int.from_bytes(digest, "little"))


def generator_at(state: Any) -> np.random.Generator:
    """A generator with the draws of another one from this state of its bits on."""
    seed: Any = _Digest(bytes(32))  # any
    bits = np.random.PCG64(seed)
    bits.state = state
    return np.random.Generator(bits)


async def computed(
    work: Callable[[], T], request: SelectionRequest, arms: LearnerSnapshot, *, us: float
) -> T:
    """Return ``work()``, which answers ``request`` from the arms of ``arms``.

    ``us``: its expected microseconds without limits. Raises Unavailable (too much waits already).
    """
    if request.limits:
        us += limits_us(request, arms)
    if request.diverse is not None:
        us += drawn_us(request.k, candidates=request.searched)
    return work() if us <= INLINE_US else await REQUESTS.run(work)


def drawn_us(k: int, *, candidates: int = 0) -> float:
    """The expected time of k draws one after the other, each from so many arms."""
    return k * (_PLACE_US + 0.02 * candidates)


def limits_us(request: SelectionRequest, arms: LearnerSnapshot) -> float:
    """About how many microseconds limits take at most: when all arms have to be looked at."""
    attributes = arms.plain.attributes
    fields = [limit.field for limit in request.limits if limit.field is not None]
    values = sum(map(attributes.values_in, fields))
    return _LIMITED_US * (arms.size + values) + request.k * _PLACE_US
