"""The store on Redis 6.2 or newer, or Valkey. Names of keys: ``redis_keys``; scripts: ``lua/``.

Every write is one script or one transaction, unless its docstring speaks of steps. So a write happens whole
or not at all, and is safe to repeat, which makes a lost reply harmless.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

from app.platform.errors import StartupError
from app.storage import redis_keys as keys
from app.storage.arm_effects import ArmEffectStore
from app.storage.arms import ArmStore
from app.storage.choices import Choices
from app.storage.decision_rows import DecisionRows
from app.storage.event_logs import EventLogs
from app.storage.exposure_limits import FrequencyCapStore, QuotaStore
from app.storage.followed_arms import FollowedArms
from app.storage.jobs import JobStore
from app.storage.learner_side_data import LearnerSideData
from app.storage.learner_states import LearnerStates
from app.storage.memory import StoreMemory
from app.storage.moves import MoveStore
from app.storage.priors import PriorStore
from app.storage.redis_client import RedisClient
from app.storage.registry import RegistryStore, WorkerLeases, WriteOnce
from app.storage.reward_log import RewardLog
from app.storage.waiting_decisions import WaitingDecisions


class Store:
    """One Redis server or cluster (redis://, rediss:// or unix://), by concern. ``open`` comes before use.

    ``url``                of the server, or of any node of the cluster
    ``partitions``         of the reward log; the first to open a store fixes them for good
    ``most_bytes``         bound for each server; None: most of its memory (``StoreMemory``)
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
        most_bytes: int | None = None,
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
        self.redis = client
        self.partitions = partitions
        self.memory = StoreMemory(client, most_bytes)
        shared = client, partitions, self.memory
        self.arms = ArmStore(*shared)
        self.followed_arms = FollowedArms(*shared)
        self.registry = RegistryStore(*shared)
        self.rewards = RewardLog(*shared)
        self.learners = LearnerStates(*shared)
        self.side_data = LearnerSideData(*shared)
        self.waiting = WaitingDecisions(*shared)
        self.rows = DecisionRows(*shared)
        self.choices = Choices(*shared)
        self.frequency_caps = FrequencyCapStore(*shared)
        self.event_logs = EventLogs(*shared)
        self.quotas = QuotaStore(*shared)
        self.jobs = JobStore(*shared)
        self.priors = PriorStore(*shared)
        self.effects = ArmEffectStore(*shared)
        self.moves = MoveStore(*shared)
        self.write_once = WriteOnce(*shared)
        self.leases = WorkerLeases(*shared)

    def __repr__(self) -> str:
        return f"Store({self.redis.address!r}, partitions={self.partitions})"

    async def open(self) -> None:
        """Connect and check the server. Raises StartupError for a server without what a store needs."""
        await self.redis.check()
        names = keys.PARTITIONS, keys.PARTITIONS_OF_2, keys.UPGRADE
        is_3, is_2, is_between = await self.redis.transaction([("EXISTS", name) for name in names])
        if is_between or (is_2 and not is_3):
            raise StartupError(
                f"the store at {self.redis.address} is one of version 2: run `shortlist upgrade`"
            )
        # A learner's partition is its hash modulo their number: with another number its rewards would be
        # looked for elsewhere.
        fixed = await self.redis.script("put_once", [keys.PARTITIONS], [self.partitions, ""])
        if int(fixed) != self.partitions:
            raise StartupError(
                f"the store at {self.redis.address} has {int(fixed)} partitions for good: "
                f"set SHORTLIST_PARTITIONS to that, not to {self.partitions}"
            )
        await self.memory.look()  # before the first write

    async def ping(self) -> None:
        """Return when the store answers, and can be written."""
        await self.redis.ping()
        await self.write()

    async def write(self) -> None:
        """Write to each server, which changes nothing. Raises Unavailable."""
        partitions = range(self.partitions if self.redis.is_cluster else 1)
        await asyncio.gather(
            *(self.redis.command("HDEL", keys.refused(partition), "") for partition in partitions)
        )

    async def close(self) -> None:
        """Wait for what was asked, then let go of all connections."""
        await self.redis.close()
