"""The secrets that sign tokens: one for each period of time, known to all processes before it is used.

Period n lasts from n to n + 1 times ``period_ms`` of the clock. The first process that needs its secret puts
one into the store. The secret of the next period is there a whole period ahead, so that no process meets a
token whose secret it does not have. A secret is kept until the last token that it signed has expired.

Secrets belong to their ``period_ms``: changing that makes all tokens invalid at once.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time

from app.errors import Unavailable
from app.services.learning.tokens import TokenSigner
from app.storage.protocol import Store

log = logging.getLogger("shortlist.tokens")

REFRESH_EVERY_S = 60.0
SECRET_BYTES = 32


class TokenSecrets:
    """Gives ``signer`` its secrets. ``refresh`` before use, then ``run``.

    ``token_ttl_ms``: how long a token is valid.
    """

    def __init__(self, store: Store, signer: TokenSigner, *, period_ms: int, token_ttl_ms: int) -> None:
        self._store = store
        self._signer = signer
        self._period_ms = period_ms
        self._periods_kept = -(-token_ttl_ms // period_ms) + 1
        self._known: dict[int, bytes] = {}

    async def refresh(self) -> None:
        """Fetch the secrets of this period, of the next one, and of all periods whose tokens may be valid."""
        now = time.time_ns() // 1_000_000 // self._period_ms
        oldest = now - self._periods_kept
        wanted = [period for period in range(oldest, now + 2) if period not in self._known]
        result = await asyncio.gather(*(self._secret(period, now) for period in wanted))
        kept = {period: secret for period, secret in self._known.items() if period >= oldest}
        self._known = kept | {
            p: secret for p, secret in zip(wanted, result, strict=True) if secret is not None
        }
        self._signer.use(self._known, current=now)

    async def run(self) -> None:
        """Refresh until cancelled. While the store does not answer, the secrets at hand stay in use."""
        every_s = min(REFRESH_EVERY_S, self._period_ms / 4_000)
        while True:
            await asyncio.sleep(every_s)
            try:
                await self.refresh()
            except Unavailable as error:
                log.warning("the store is not available, the secret of tokens stays: %s", error.detail)

    async def _secret(self, period: int, now: int) -> bytes | None:
        name = f"token-secret/{self._period_ms}/{period}"
        if period < now:  # if there is none, no token was signed in that period
            return await self._store.write_once.get(None, name)
        ttl_ms = (period - now + self._periods_kept + 2) * self._period_ms
        return await self._store.write_once.put(None, name, os.urandom(SECRET_BYTES), ttl_ms=ttl_ms)
