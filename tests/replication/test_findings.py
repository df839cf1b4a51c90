"""What is not well with a service is said, with what to do about it."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from app.replication.health import Finding, Health
from app.storage.embedded.losses import Loss
from app.storage.memory import StoreMemory
from app.storage.types import Lag

pytestmark = [pytest.mark.rest, pytest.mark.anyio]


def used(*bytes_: int) -> list[dict[str, int]]:
    """What several servers say of their memory; of each 100 bytes may be taken."""
    return [{"used_memory": more + 7, "mem_clients_normal": 7} for more in bytes_]


class Sized(SimpleNamespace):
    def __len__(self) -> int:
        return 0


class Bandits(list[Any]):
    def of_catalogue(self, name: str) -> list[str]:
        return []


async def findings(path: Path, **different: Any) -> list[Finding]:
    """Those of a service that is well but for what is ``different``."""

    def answering(name: str, value: object) -> Any:
        async def answer(*_: object) -> object:
            return different.get(name, value)

        return answer

    lag = answering("lag", Lag(0.0, 0))
    store: Any = SimpleNamespace(
        redis=SimpleNamespace(durability=answering("durability", "always"), faults=answering("faults", [])),
        rewards=SimpleNamespace(backlog=answering("backlog", 3), lag=lag), partitions=1,
        write=answering("write", None),
    )  # fmt: skip
    servers: Any = SimpleNamespace(memory=answering("memory", used(79)))
    store.memory = StoreMemory(servers, 100)
    record = SimpleNamespace(arm_effects="off")
    bandits: Any = Bandits([SimpleNamespace(name="home", uid="u", record=record)])
    catalogues: Any = [SimpleNamespace(name="shop", index=Sized(failure=different.get("failure")))]
    quotas: Any = SimpleNamespace(warnings=lambda bandit: different.get("quotas", []))
    losses: Any = SimpleNamespace(known=lambda: different.get("loss"))
    learners: Any = Sized(bytes=0)
    unused: Any = None
    health = Health(
        store=store, catalogues=catalogues, bandits=bandits, learners=learners, quotas=quotas, priors=unused,
        sync=unused, metrics=unused, max_backlog=10, worker=different.get("worker", True), losses=losses,
        data_dir=path, missing_plugins=lambda bandit: different.get("missing", []),
    )  # fmt: skip
    return list((await health.status()).findings)


async def test_a_service_that_is_well_has_nothing_else(tmp_path: Path):
    assert [(found.name, found.good) for found in await findings(tmp_path)] == [
        ("backlog", True),
        ("durability", True),
    ]


@pytest.mark.parametrize(
    ("different", "name", "good", "words"),
    [
        ({"faults": ["is a copy"]}, "store", False, "the store is a copy"),
        ({"lag": Lag(0.0, 2)}, "dead", False, "2 rewards could not be applied: shortlist dead-letters list"),
        ({"lag": Lag(0.0, 1)}, "dead", False, "1 reward could not be applied: shortlist dead-letters list"),
        ({"worker": False}, "worker", None, "shortlist worker"),
        ({"durability": "everysec"}, "durability", False, "everysec"),
        ({"memory": used(70, 85, 81)}, "space", False, "jobs are refused"),
        ({"memory": used(95)}, "space", False, "only rewards, activations"),
        ({"memory": used(101)}, "space", False, "rewards are refused, too"),
        ({"failure": "MemoryError: 3 GB"}, "index", False, "the index of shop stays as it was"),
        ({"quotas": ["has quotas"]}, "quotas", False, "the bandit home has quotas"),
        (
            {"missing": ["the policy p"]},
            "plugins",
            False,
            "home chooses nothing: no loaded plug-in provides the",
        ),
        ({"loss": Loss(at="today", what="10 rewards")}, "loss", False, "today: 10 rewards"),
    ],
)
async def test_what_is_not_well_is_named(
    tmp_path: Path, different: dict[str, Any], name: str, good: bool | None, words: str
):
    (found,) = [finding for finding in await findings(tmp_path, **different) if not finding.good]
    assert (found.name, found.good) == (name, good)
    assert words in found.text
