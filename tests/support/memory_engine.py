"""An engine of arms in the memory of the test: as one of a package outside, but without a server."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from app.engines.engine_contract import ArmEngine, CollectionGone, EngineArm, EngineKind
from app.platform.errors import Unavailable


class MemoryEngine(ArmEngine):
    """``is_away``: it answers nothing. ``blind``: it knows no filters: it proposes arms that do not match."""

    def __init__(self) -> None:
        self.held: dict[str, dict[str, EngineArm]] = {}
        self.dims: dict[str, int] = {}
        self.is_away = self.blind = False

    async def open(self) -> None:
        pass

    async def close(self) -> None:
        pass

    def check(self) -> None:
        if self.is_away:
            raise Unavailable("the engine of the test is away")

    def arms_of(self, name: str) -> dict[str, EngineArm]:
        self.check()
        if name not in self.held:
            raise CollectionGone("there is no such collection")
        return self.held[name]

    async def create(self, name: str, dim: int, *, m: int, ef_construction: int) -> None:
        self.check()
        self.held[name], self.dims[name] = {}, dim

    async def dim(self, name: str) -> int | None:
        self.check()
        return self.dims.get(name)

    async def collections(self) -> Sequence[str]:
        self.check()
        return list(self.held)

    async def drop(self, name: str) -> None:
        self.check()
        self.held.pop(name, None)
        self.dims.pop(name, None)

    async def write(self, name: str, arms: Sequence[EngineArm], deleted: Sequence[str]) -> None:
        held = self.arms_of(name)
        held.update({arm.id: arm for arm in arms})
        for arm_id in deleted:
            held.pop(arm_id, None)

    async def seal(self, name: str) -> None:
        self.arms_of(name)

    async def search(
        self, collection: str, query: Any, limit: int, *, arm_filter: Any = None, ef: int
    ) -> list[str]:
        arms = [
            arm
            for arm in self.arms_of(collection).values()
            if arm_filter is None or self.blind or arm_filter.matches(*arm.document)
        ]
        order = np.argsort([-float(arm.features @ query) for arm in arms], kind="stable")
        return [arms[place].id for place in order[:limit].tolist()]


class MemorySource(EngineKind):
    """``made``: the engines that it gave to services."""

    title = "Memory"
    setting = "MEMORY_URL"
    least_dim = 2

    def __init__(self) -> None:
        self.made = list[MemoryEngine]()

    def engine(self, settings: Any) -> MemoryEngine:
        self.made.append(MemoryEngine())
        return self.made[-1]
