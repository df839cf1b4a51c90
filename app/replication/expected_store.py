"""The expected content of the store, as last seen from this data directory: its identity, and growing
counters.

An emptied store, one restored from an older copy, and a wrong one answer like any other. So
each process keeps a file in its data directory, ``expected-store.json``: a random identity put into the store
once, and counters of writes. These are the version of the registry and of each catalogue, the number of
versions of learned priors, and for each partition the newest entry of its log and the watermark. A start
compares them with the store, and refuses a store with a lack. Several processes may share the file: each
writes true numbers, and counters only grow.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from app.platform.background import repeat
from app.platform.errors import StartupError, Unavailable
from app.storage.embedded.losses import Losses, read_sealed, write_sealed
from app.storage.store import Store
from app.storage.types import UID_LENGTH

log = logging.getLogger("shortlist.store")

REFRESH_S = 5.0
PATIENCE_S = 1.0
SHOWN = 4
_IDENTITY = "identity"
_UNKNOWN = -1  # no catalogue is in this version


@dataclass(frozen=True, slots=True)
class Holding:
    """The content of a store: its ``identity``, None without one, and ``counters`` by name."""

    identity: str | None
    counters: Mapping[str, int]

    def lacks(self, expected: Holding) -> str:
        """The part of ``expected`` which is missing here, for a human; empty when nothing is."""
        if self.identity is None:
            return "it has no identity: it is a new one, or was emptied"
        if self.identity != expected.identity:
            return f"it is another one: its identity is {self.identity}, not {expected.identity}"
        lost = list(_lower(self.counters, expected.counters))
        more = f" and {len(lost) - SHOWN} more" if len(lost) > SHOWN else ""
        return ", ".join(lost[:SHOWN]) + more


def _lower(counters: Mapping[str, int], expected: Mapping[str, int]) -> Iterator[str]:
    changed = counters["registry"] > expected["registry"]
    for name, value in expected.items():
        if name not in counters and changed:
            continue  # a catalogue that was deleted since
        result = counters.get(name, 0)
        if result < value:
            yield f"{name} is at {result}, and was at {value}"


class ExpectedStore:
    """``check`` before anything is served, then ``run``; ``finish`` at the end.

    ``accept_loss``: a loss is logged and recorded, and from then on the store is expected as it is.
    """

    def __init__(self, store: Store, data_dir: Path, *, accept_loss: bool) -> None:
        self._store = store
        self._path = data_dir / "expected-store.json"
        self._losses = Losses(data_dir)
        self._accept_loss = accept_loss
        self._checked = self._failed = False
        self._catalogues: tuple[int, dict[str, str]] = (-1, {})  # version of the registry, uid -> name
        self._versions: Mapping[str, int] = {}  # of catalogues by uid, as they were read last

    async def check(self) -> None:
        """Return when nothing is missing. Raises StartupError, Unavailable."""
        result, lost = await self._compare()
        if result.identity is not None and not self._path.exists():
            log.info("%s is not there yet: the store is taken as it is", self._path)
        if lost and not self._accept_loss:
            raise StartupError(
                f"the store is not as the data directory {self._path.parent} knows it: {lost}. If data were "
                "lost, put a backup back. If this is meant, as after a move to a new store, start once with "
                "--accept-loss, or with another data directory"
            )
        if lost:
            log.error("the store has lost data, and the loss is accepted: %s", lost)
            self._losses.record(lost)
        await self._expect(result)
        self._checked = True

    async def missing(self) -> str:
        """The lack of the store, for a human. Changes nothing. Raises Unavailable."""
        return (await self._compare())[1]

    async def refresh(self) -> None:
        """Expect what is there now. What was lost meanwhile is logged and recorded. Raises Unavailable."""
        result, lost = await self._compare()
        if lost:
            log.error("the store has lost data while this process runs: %s", lost)
            self._losses.record(lost)
        await self._expect(result)

    async def run(self) -> None:
        """Refresh again and again, until cancelled."""
        await repeat(self.refresh, every_s=REFRESH_S)

    async def finish(self) -> None:
        """Expect from now on the content at the end, if the store was served and answers in time."""
        if not self._checked:
            return
        with contextlib.suppress(Unavailable, TimeoutError):
            async with asyncio.timeout(PATIENCE_S):
                await self.refresh()

    async def _compare(self) -> tuple[Holding, str]:
        """The content of the store, and its lack. The file is read first: its content was in the store
        before.
        """
        try:
            expected = self._read()
        except ValueError as error:
            return await self._holding(), str(error)
        result = await self._holding()
        return result, result.lacks(expected) if expected else ""

    async def _expect(self, result: Holding) -> None:
        if result.identity is None:
            new = secrets.token_hex(16).encode()
            identity = await self._store.write_once.put(None, _IDENTITY, new, ttl_ms=None)
            result = Holding(identity.decode(), result.counters)
        await asyncio.to_thread(self._write, result)

    async def _holding(self) -> Holding:
        """Read again while the registry changes: a catalogue deleted meanwhile seems to lose all."""
        while True:
            identity = await self._store.write_once.get(None, _IDENTITY)
            registry_version, names = await self._registered()
            await self._read_versions(names)
            logs = await self._store.learners.changed(dict.fromkeys(range(self._store.partitions), ""))
            counters = {"registry": registry_version, "learned priors": await self._store.priors.changes()}
            for uid, name in names.items():
                counters[f"catalogue {name} ({uid})"] = self._versions[uid]
            for partition, log_end in logs.items():
                counters[f"reward log {partition}"] = _number(log_end.newest)
                counters[f"watermark {partition}"] = _number(log_end.watermark)
            if await self._store.registry.version() == registry_version:
                return Holding(identity.decode() if identity else None, counters)

    async def _read_versions(self, uids: Iterable[str]) -> None:
        """Know the versions of these catalogues: of a thousand at rest none is read by itself."""
        before = {uid: self._versions.get(uid, _UNKNOWN) for uid in uids}
        changed = await self._store.arms.behind(before)
        newest = await asyncio.gather(*map(self._store.arms.version, changed))
        self._versions = before | dict(zip(changed, newest, strict=True))

    async def _registered(self) -> tuple[int, dict[str, str]]:
        """The version of the registry and its catalogues, uid -> name; read again after a change."""
        if await self._store.registry.version() != self._catalogues[0]:
            registry = await self._store.registry.read()
            names = {record[:UID_LENGTH].decode(): name for name, record in registry.catalogues.items()}
            self._catalogues = registry.version, names
        return self._catalogues

    def _read(self) -> Holding | None:
        document = read_sealed(self._path)
        return Holding(**document) if document else None

    def _write(self, result: Holding) -> None:
        try:
            if self._read() == result:
                return
        except ValueError:
            pass
        try:
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            write_sealed(self._path, asdict(result))
        except OSError as error:
            if not self._failed:
                log.warning("what the store must have cannot be kept in %s: %s", self._path, error.strerror)
            self._failed = True


def _number(entry_id: str) -> int:
    """Entries of a log are numbered without a gap: see ``redis_keys``."""
    return int(entry_id.partition("-")[2])
