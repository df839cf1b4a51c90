"""Rates of requests: of an API key, and of each visitor with a pass of the key: 429 beyond.

Each has a token bucket in the memory of this process: of several processes each lets in as many. A bucket
holds a second's worth of requests, at least one, and fills at its rate. A stored bucket is one time, at which
the bucket will be full again (the generic cell rate algorithm: ITU-T I.371, annex A). A full bucket is not
stored, so memory is in proportion to the keys and visitors with a request within the last second, or in debt.

The library ``limits`` was measured first: its windows of one second take 7 to 12 us where they may let in
twice the rate at their edges, and 9 to 41 us and a list of all requests of the second where they may not; a
thread drops what is over. This takes 0.7 us.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable

from app.api.api_keys import ApiKey
from app.platform.errors import TooManyRequests
from app.platform.metrics import Metrics

LEAST_PURGED = 1_024
ROUNDING_S = 1e-6


class Rates:
    """For the event loop. ``clock``: seconds that only grow."""

    def __init__(self, metrics: Metrics, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._refused = metrics.rate_refused.labels
        self._clock = clock
        self._full_at: dict[tuple[str, str | None], float] = {}
        self._purge_at = LEAST_PURGED

    def __len__(self) -> int:
        return len(self._full_at)

    def admit(self, key: ApiKey) -> None:
        """Count one request. Raises TooManyRequests, and does not count it, beyond a second's worth."""
        self._count(key, 1, lowest=1.0)

    def charge(self, key: ApiKey | None, count: int) -> None:
        """Count further requests of an admitted one's body: the bucket may come to be in debt.

        Raises TooManyRequests, and does not count them, where others put it into debt since the first was
        admitted: heads admitted one by one would let in all their bodies at once.
        """
        if key is not None and count:
            self._count(key, count, lowest=0.0)

    def _count(self, key: ApiKey, count: int, *, lowest: float) -> None:
        """Take ``count`` from the bucket. Raises TooManyRequests if it holds less than ``lowest``."""
        if key.rate is None:
            return
        clock_s, name = self._clock(), (key.name, key.visitor)
        # A time in the past is a full bucket.
        full_at = max(self._full_at.get(name, clock_s), clock_s)
        size_s = max(1.0, 1.0 / key.rate)
        if full_at - clock_s > size_s - lowest / key.rate + ROUNDING_S:
            self._refused(key.name, "key" if key.visitor is None else "pass").inc()
            whose = "API key" if key.visitor is None else "pass"
            message = f"this {whose} may make {key.rate:g} requests a second; see Retry-After"
            # The request that is sent again begins with its head: as long as `admit` waits.
            wait_s = full_at - clock_s - size_s + 1.0 / key.rate
            raise TooManyRequests(message, retry_after_s=math.ceil(wait_s))
        # Twice what is left, so that purging costs O(1) for each request.
        if len(self._full_at) >= self._purge_at:
            self._full_at = {bucket: at for bucket, at in self._full_at.items() if at > clock_s}
            self._purge_at = max(LEAST_PURGED, 2 * len(self._full_at))
        self._full_at[name] = full_at + count / key.rate
