"""Until when idle learners live, after their bandit's ``idle_ttl_s`` was changed.

A learner's last sign of life left a time in the store at which it is idle, by the ``idle_ttl_s`` of then.
When that time has come the bandit is asked what holds now:

    unchanged or shorter    the learner is idle
    longer                  it lives until that long after the change, which counts as a sign of life
    none                    it lives on; it is looked at again after a day, as there may be one by then
"""

from __future__ import annotations

from app.services.bandits.versions import StoredVersions
from app.storage.protocol import RegistryStore

LOOK_AGAIN_MS = 86_400_000


class IdleRules:
    """The rules of all bandits."""

    def __init__(self, store: RegistryStore) -> None:
        self._versions = StoredVersions(store)

    async def lives_until(self, bandit_uid: str, now_ms: int) -> int:
        """Until when a learner of the bandit lives whose time has come by ``now_ms``.

        It is idle when that is not later. Raises Unavailable.
        """
        version = (await self._versions.all()).get(bandit_uid)
        if version is None:
            return 0  # the bandit is deleted
        if version.record.idle_ttl_s is None:
            return now_ms + LOOK_AGAIN_MS
        if not version.idle_since_ms:
            return 0
        return version.idle_since_ms + round(1_000 * version.record.idle_ttl_s)
