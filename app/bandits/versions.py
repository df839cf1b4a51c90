"""Versions of a bandit: every change makes one. A decision is rewarded by the terms of its own version.

So versions are kept while decisions may name them:

    made        version 1, stored in the bandit itself
    changed     the next version, kept beside the first one
    dropped     the oldest, beyond ``MAX_VERSIONS``, once no decision of it can be rewarded
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence

import msgspec

from app.bandits.record_settings import stored_settings
from app.bandits.settings import BanditRecord
from app.platform.cursors import decode_number, encode_cursor
from app.platform.documents import unknown_fields
from app.platform.errors import Conflict, NotFound, QuotaReached, Unavailable
from app.records.records import unpack
from app.storage.store import Store
from app.storage.types import UID_LENGTH, BanditChange, MoveWrite

MAX_VERSIONS = 1_000
MARGIN_MS = 60_000  # the clocks of processes may differ by so much
Following = tuple[bytes, BanditChange] | None  # what is stored instead; None: it stays


Changed = Callable[[str, "BanditVersion"], BanditRecord]  # (uid, version as it is) -> record as it is to be
Moved = Callable[[str, "BanditVersion"], tuple[BanditRecord, MoveWrite]]  # the same, for another catalogue


class BanditVersion(msgspec.Struct, frozen=True, array_like=True):
    """A bandit as it is, or was, since it was made or changed.

    ``number``          counted from 1
    ``since_ms``        when it was made or changed
    ``idle_since_ms``   when ``idle_ttl_s`` was last changed; 0: never
    ``by``              the name of the API key that made or changed it; None: no key
    """

    record: BanditRecord
    number: int = 1
    since_ms: int = 0
    idle_since_ms: int = 0
    by: str | None = None


def first_version(record: BanditRecord, by: str | None) -> bytes:
    """The stored bytes of a new bandit, under a new uid."""
    return version_to_bytes(secrets.token_hex(UID_LENGTH // 2), BanditVersion(record, 1, _now_ms(), by=by))


def version_to_bytes(uid: str, version: BanditVersion) -> bytes:
    _, *others = msgspec.structs.astuple(version)
    return uid.encode("ascii") + msgspec.msgpack.encode((stored_settings(version.record), *others))


def bytes_to_version(data: bytes) -> tuple[str, BanditVersion]:
    """Uid and version of a bandit; settings known only to a newer version of the service are left out.

    Raises Unavailable for a value known only to a newer one: the bandit cannot be served here.
    """
    try:
        version = unpack(data[UID_LENGTH:], BanditVersion)
    except msgspec.ValidationError as error:
        raise Unavailable(f"the bandit has settings of a newer version of the service: {error}") from None
    return uid_of(data), version


def uid_of(data: bytes) -> str:
    return data[:UID_LENGTH].decode("ascii")


def check_known(data: bytes) -> None:
    """Raise Conflict for a bandit with settings known only to a newer version of the service."""
    stored, *_ = msgspec.msgpack.decode(data[UID_LENGTH:])
    if names := ", ".join(unknown_fields(stored, bytes_to_version(data)[1].record)):
        raise Conflict(
            f"the bandit has settings of a newer version of the service ({names}): change it there"
        )


class BanditVersions:
    """The versions of all bandits in the store. ``rewarded_s``: how long a decision can be rewarded."""

    most = MAX_VERSIONS

    def __init__(self, store: Store, *, rewarded_s: float) -> None:
        self._store = store
        self.rewarded_ms = round(1_000 * rewarded_s)

    async def change(self, name: str, expected: bytes, changed: Changed, by: str | None) -> bytes:
        """Give a bandit the record made by ``changed`` of the present one, and return the stored bytes.

        ``expected``: the bytes believed to be stored. When somebody else has changed them, ``changed`` is
        called again: of two changes at the same time both are made. An error of ``changed`` leaves all
        unchanged. Raises NotFound, Conflict (settings unknown here), QuotaReached, Unavailable.
        """

        async def following(expected: bytes, uid: str, version: BanditVersion) -> Following:
            record = changed(uid, version)
            if record == version.record:
                return None
            new = _following(version, record, by)
            data = version_to_bytes(uid, new)
            versions = {version.number: expected, new.number: data}
            return data, BanditChange(versions, await self._dropped(uid, new))

        return await self._swap(name, expected, following)

    async def move(
        self, name: str, expected: bytes, moved: Moved, by: str | None
    ) -> tuple[bytes, str | None]:
        """As ``change``, to another catalogue: the stored bytes, and the catalogue's name; None: the
        catalogue is gone.
        """
        joined = list[str]()

        async def following(expected: bytes, uid: str, version: BanditVersion) -> Following:
            record, move = moved(uid, version)
            new = _following(version, record, by)
            data = version_to_bytes(uid, new)
            joined[:] = [record.catalogue]
            versions = {version.number: expected, new.number: data}
            return data, BanditChange(versions, await self._dropped(uid, new), move)

        stored = await self._swap(name, expected, following)
        return stored, joined[0] if stored else None

    async def settle(
        self, name: str, expected: bytes, settled: Callable[[BanditRecord], BanditRecord]
    ) -> bytes:
        """Store what nobody asked for: the same version, with what ``settled`` makes of its record.

        Otherwise as ``change``.
        """

        async def following(_known: bytes, uid: str, version: BanditVersion) -> Following:
            record = settled(version.record)
            if record == version.record:
                return None
            same = msgspec.structs.replace(version, record=record)
            return version_to_bytes(uid, same), BanditChange({}, ())

        return await self._swap(name, expected, following)

    async def _swap(
        self,
        name: str,
        expected_data: bytes,
        following: Callable[[bytes, str, BanditVersion], Awaitable[Following]],
    ) -> bytes:
        """Store the version made by ``following`` of the stored one, and call it again after a change
        meanwhile.
        """
        while True:
            check_known(expected_data)
            uid, version = bytes_to_version(expected_data)
            if (new := await following(expected_data, uid, version)) is None:
                return expected_data
            data, change = new
            stored = await self._store.registry.change_bandit(
                name, uid, change, expected=expected_data, record=data
            )
            if stored is None:
                raise NotFound("there is no bandit with this name")
            if stored == data or not stored:
                return stored
            expected_data = stored

    async def one(self, uid: str, number: int) -> bytes | None:
        """The stored bytes of one version; None: the version was not kept."""
        (data,) = await self._store.registry.bandit_versions(uid, [number])
        return data

    async def page(
        self, uid: str, current: BanditVersion, cursor: str | None, limit: int
    ) -> tuple[Sequence[BanditVersion], str | None]:
        """The newest ``limit`` versions below the cursor's, and the cursor of the next page."""
        below = current.number + 1 if cursor is None else min(decode_number(cursor), current.number + 1)
        lowest = max(1, current.number - self.most + 1)
        numbers = range(below - 1, max(below - 1 - limit, lowest - 1), -1)
        older = [number for number in numbers if number < current.number]
        older_versions = [
            bytes_to_version(data)[1]
            for data in await self._store.registry.bandit_versions(uid, older)
            if data
        ]
        page = [current, *older_versions] if current.number in numbers else older_versions
        more = bool(page) and page[-1].number > lowest
        return page, encode_cursor(str(page[-1].number)) if more else None

    async def _dropped(self, uid: str, new: BanditVersion) -> Sequence[int]:
        """The version that makes room for a new one. Raises QuotaReached while decisions may need it."""
        oldest = new.number - self.most
        if oldest < 1:
            return ()
        following = await self.one(uid, oldest + 1)
        since_ms = 0 if following is None else bytes_to_version(following)[1].since_ms
        if _now_ms() < since_ms + self.rewarded_ms + MARGIN_MS:
            raise QuotaReached(
                f"a bandit keeps at most {self.most:,} versions, and decisions of the oldest may still be "
                "rewarded: change it less often, or wait"
            )
        return (oldest,)


class StoredVersions:
    """All bandits as they are stored now, by uid; read again when the registry has changed."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._registry_version = -1
        self._versions: Mapping[str, BanditVersion] = {}

    async def all(self) -> Mapping[str, BanditVersion]:
        """Raises Unavailable."""
        if await self._store.registry.version() != self._registry_version:
            registry = await self._store.registry.read()
            self._versions = dict(map(bytes_to_version, registry.bandits.values()))
            self._registry_version = registry.version
        return self._versions


def _following(version: BanditVersion, record: BanditRecord, by: str | None) -> BanditVersion:
    now_ms = max(_now_ms(), version.since_ms)
    keeps_idle = record.idle_ttl_s == version.record.idle_ttl_s
    idle_since_ms = version.idle_since_ms if keeps_idle else now_ms
    return BanditVersion(record, version.number + 1, now_ms, idle_since_ms, by)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def etag_of(uid: str, number: int) -> str:
    """The entity tag of a version: no other one, of any bandit, has it."""
    return f'"{uid}.{number}"'
