"""A service without its HTTP face, for tests."""

from dataclasses import dataclass
from typing import Any

from app.bandits.bandit import Bandit
from app.bandits.settings import BanditRecord, RewardRule
from app.catalogues.arms import Arm
from app.platform.background import end
from app.platform.pauses import Pauses
from app.records.records import CatalogueRecord
from app.rewards.reward_entries import Observation, Reward
from app.rewards.rewards import Receipt
from app.selection.request import ChooseRequest
from app.serving.choice import Choice
from app.storage.store import Store
from server.composition import Service

# Busy machines apply rewards late; many tests wait for the rows of single choices.
PATIENT = Pauses(applied_s=100.0, rows_s=0.02)
INDEX: dict[str, Any] = {"kind": "auto", "m": 16, "ef_construction": 100, "ef_search": None, "shortlist": 30}


def bandit_record(catalogue: str = "c", **changes: Any) -> BanditRecord:
    fields: dict[str, Any] = {
        "catalogue": catalogue, "policy": "linear_ts", "scope": "per_key", "ridge": 1.0, "exploration": 0.0,
        "delta": 0.05, "horizon": 1_000, "shortlist": 30, "eta": None, "reward": RewardRule(),
    }  # fmt: skip
    return BanditRecord(**{**fields, **changes})


@dataclass
class HeadlessService:
    """A started service: what it is composed of, and its store."""

    parts: Service
    store: Store

    async def quiet(self) -> None:
        """End what the service does by itself, housekeeping too: the test says when it is done."""
        await end(self.parts.background)

    async def catalogue(self, name: str = "c", dim: int = 2, arms: int = 4) -> None:
        catalogue, _ = await self.parts.catalogues.create(name, CatalogueRecord(dim, INDEX))
        rows = [Arm(f"a{i}", [1.0, *[float(i)] * (dim - 1)]) for i in range(arms)]
        await self.parts.catalogues.upsert(catalogue, rows)

    async def bandit(self, name: str = "b", catalogue: str = "c", **changes: Any) -> Bandit:
        bandit, _ = await self.parts.bandits.create(name, bandit_record(catalogue, **changes))
        return bandit

    async def choose(self, bandit: Bandit, key: str = "ann", **request: Any) -> Choice:
        return await self.parts.choosing.choose(bandit, ChooseRequest(key=key, **request))

    async def observe(self, bandit: Bandit, *ids: str, key: str = "ann", arm: str = "a1") -> Receipt:
        """One observation of value 1 for each id, applied."""
        items = [Observation(name, arm, 1.0, key) for name in ids]
        receipt = await self.parts.rewards.observe(bandit, items)
        await self.parts.rewards.wait(receipt)
        return receipt

    async def reward(self, token: str) -> Receipt:
        receipt = await self.parts.rewards.reward([Reward(token, 1.0)])
        await self.parts.rewards.wait(receipt)
        return receipt
