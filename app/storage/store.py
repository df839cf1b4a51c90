"""The store on Redis 6.2 or newer, or Valkey. Names of keys: ``redis_keys``; scripts: ``lua/``.

Every write is one script or one transaction, unless it is made in steps, so it happens whole or not at all,
and is safe to repeat: that is what makes a lost reply harmless.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from app.platform.errors import StartupError
from app.storage import redis_keys as keys
from app.storage.arms import RedisArms
from app.storage.campaigns import RedisCampaigns
from app.storage.choices import RedisChoices
from app.storage.decision_rows import RedisDecisionRows
from app.storage.followed_arms import RedisFollowedArms
from app.storage.jobs import RedisJobs
from app.storage.learner_side_data import RedisLearnerSideData
from app.storage.learner_states import RedisLearnerStates
from app.storage.priors import RedisPriors
from app.storage.quotas import RedisQuotas
from app.storage.redis_client import RedisClient
from app.storage.registry import RedisLeases, RedisRegistry, RedisWriteOnce
from app.storage.reward_log import RedisRewardLog
from app.storage.space import SpaceBudget
from app.storage.types import Kind, Store
from app.storage.usage import RedisUsage
from app.storage.waiting_decisions import RedisWaitingDecisions


class RedisStore(Store):
    """Implements ``protocol.Store`` on one Redis server or cluster: redis://, rediss:// or unix://.

    ``url``                of the server, or of any node of the cluster
    ``partitions``         of the reward log; the first to open a store fixes them for good
    ``bounds``             bytes of each kind that it may hold; a kind that is missing has none
    ``max_connections``    held at most
    ``pool_timeout_s``     how long a call waits for a free connection
    ``socket_timeout_s``   how long a call waits for its answer
    ``data_dir``           errors say when its disk is full
    """

    def __init__(
        self,
        url: str,
        *,
        partitions: int = 16,
        bounds: Mapping[Kind, int] | None = None,
        max_connections: int = 64,
        pool_timeout_s: float = 2.0,
        socket_timeout_s: float = 5.0,
        data_dir: Path | None = None,
    ) -> None:
        client = RedisClient(
            url,
            max_connections=max_connections,
            pool_timeout_s=pool_timeout_s,
            socket_timeout_s=socket_timeout_s,
            data_dir=data_dir,
        )
        self._redis = client
        self.partitions = partitions
        shared = client, partitions, SpaceBudget(bounds or {})
        self.arms = RedisArms(*shared)
        self.followed_arms = RedisFollowedArms(*shared)
        self.registry = RedisRegistry(*shared)
        self.rewards = RedisRewardLog(*shared)
        self.learners = RedisLearnerStates(*shared)
        self.side_data = RedisLearnerSideData(*shared)
        self.waiting = RedisWaitingDecisions(*shared)
        self.rows = RedisDecisionRows(*shared)
        self.choices = RedisChoices(*shared)
        self.campaigns = RedisCampaigns(*shared)
        self.quotas = RedisQuotas(*shared)
        self.jobs = RedisJobs(*shared)
        self.priors = RedisPriors(*shared)
        self.write_once = RedisWriteOnce(*shared)
        self.leases = RedisLeases(*shared)
        self.usage = RedisUsage(*shared)

    def __repr__(self) -> str:
        return f"RedisStore({self._redis.address!r}, partitions={self.partitions})"

    async def open(self) -> None:
        """Connect and check the server. Raises StartupError when it is not one that we can use."""
        await self._redis.check()
        fixed = await self._redis.script("put_once", [keys.PARTITIONS], [self.partitions, ""])
        if int(fixed) != self.partitions:
            raise StartupError(
                f"the store at {self._redis.address} has {int(fixed)} partitions for good: "
                f"it cannot be opened with {self.partitions}"
            )
        await self.usage.read()

    async def durability(self) -> str:
        return await self._redis.durability()

    async def ping(self) -> None:
        await self._redis.ping()

    async def close(self) -> None:
        await self._redis.close()
