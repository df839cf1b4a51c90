"""Rows of the decision log on Redis: a hash for each learner, and for each bandit their order."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from app.platform.deadlines import yield_to_others
from app.storage import redis_keys as keys
from app.storage.memory import Level, StoreMemory
from app.storage.part import RedisPart, check_positive
from app.storage.redis_client import Argument, RedisClient
from app.storage.types import RowWrite, StoredRow, StoredRows, entry_order
from app.storage.types.decisions import DecisionId, LearnerId

_FROM = ":from"
STEP = 500
READ = 50  # rows that are read together: one may take 100 kB

Names = Callable[[bytes], bool]
"""Whether a record names somebody."""


class DecisionRows(RedisPart):
    """The decision log. The rows of a learner go when the learner is erased, those of a bandit when the
    bandit is deleted. A dropped row is never made again.
    """

    async def write(self, partition: int, rows: Sequence[RowWrite]) -> None:
        """Keep new rows, unless their learner was forgotten or their bandit deleted.

        A row made by a reward lacks candidates, and gets them here.
        """
        by_learner: dict[LearnerId, list[RowWrite]] = {}
        for row in rows:
            by_learner.setdefault(row.decision.learner, []).append(row)
        names = keys.of_partition(partition, keys.refused, keys.deleted, keys.row_logs)
        arguments: list[Argument] = [len(by_learner)]
        for learner, theirs in by_learner.items():
            names += (keys.rows(partition, learner), keys.row_times(partition, learner.bandit_uid))
            names.append(keys.forgotten(partition, learner))
            # All rows of a learner are of one bandit, which has one time to keep them.
            arguments += (*learner, theirs[0].keep_ms, len(theirs))
            for row in theirs:
                arguments += (field_of(row), row.known_entry, row.record, row.candidates)
        await self._redis.script("write_rows", names, arguments, bulk=True)

    async def read_row(self, decision: DecisionId, issued_ms: int) -> StoredRow | None:
        field = keys.row_field(issued_ms, decision.id)
        key = keys.rows(self._partition(decision.learner), decision.learner)
        value: bytes | None = await self._redis.command("HGET", key, field)
        return None if value is None else _stored(field, decision.learner, value)

    async def of_learner(self, learner: LearnerId, count: int) -> Sequence[StoredRow]:
        """The newest rows of one learner, the oldest first. Cost: O(its rows)."""
        check_positive("count", count)
        key = keys.rows(self._partition(learner), learner)
        fields = sorted(await self._redis.bulk("HKEYS", key))[-count:]
        result = list[StoredRow]()
        for start in range(0, len(fields), READ):
            batch = fields[start : start + READ]
            values = await self._redis.bulk("HMGET", key, *batch)
            pairs = zip(batch, values, strict=True)
            result += [_stored(field.decode(), learner, value) for field, value in pairs if value is not None]
        return result

    async def read(
        self,
        partition: int,
        bandit_uid: str,
        *,
        after: str,
        before: str,
        count: int,
        most_bytes: int,
        newest_first: bool = False,
    ) -> StoredRows:
        """The first rows after the position ``after`` and before ``before``, of all learners of a partition.

        A beginning of a position will do as ``after`` and ``before``. ``count`` rows at most, and no more
        once they have ``most_bytes``. With ``newest_first`` the last of them, in descending order.
        """
        check_positive("count", count)
        names = [keys.row_times(partition, bandit_uid), keys.rows(partition, LearnerId(bandit_uid, ""))]
        names += keys.of_partition(partition, keys.log, keys.watermark)
        # A member goes on after its position, with a slash: below "0", and no character of an id is below
        # "0".
        least, most = f"({after}0" if after else "-", f"({before}" if before else "+"
        arguments: list[Argument] = [least, most, count, most_bytes, int(newest_first)]
        result = await self._redis.script("read_rows", names, arguments, bulk=True)
        # All partitions may be read at once: choices come between what is made of their answers.
        await yield_to_others()
        following, newest, *pairs = result
        rows = []
        for member, value in zip(pairs[::2], pairs[1::2], strict=True):
            position, _, learner = member.decode().partition("/")
            rows.append(_stored(position, LearnerId(bandit_uid, learner), value))
        return StoredRows(rows, following.decode(), entry_order(newest.decode())[1])

    async def logs(self, partition: int) -> Mapping[str, int]:
        """For how many ms rows are kept, by the uid of each bandit with rows in the partition."""
        result = await self._redis.command("HGETALL", keys.row_logs(partition))
        pairs = ((name.decode(), int(value)) for name, value in result.items())
        # The same hash says from when rows are whole (``kept_from``): a colon cannot be in a uid.
        return {name: value for name, value in pairs if not name.endswith(_FROM)}

    async def kept_from(self, partition: int, bandit_uid: str) -> int:
        """The ms before which rows of a bandit in the partition were dropped; 0: none was."""
        result = await self._redis.command("HGET", keys.row_logs(partition), bandit_uid + _FROM)
        return 0 if result is None else int(result)

    async def sizes(self, partition: int, bandit_uid: str, *, pieces: int) -> Sequence[tuple[int, float]]:
        """Estimate the bytes of a bandit's rows in the partition, in at most ``pieces`` pieces of one length.

        Of each piece, the oldest first: when one of its rows was decided, in ms, and how many bytes all its
        rows take, if they are like this one. Exact where there are no more rows than pieces.
        """
        check_positive("pieces", pieces)
        names = [keys.row_times(partition, bandit_uid), keys.rows(partition, LearnerId(bandit_uid, ""))]
        rows, *result = await self._redis.script("row_sizes", names, [pieces])
        times, sizes = result[::2], result[1::2]
        return [(ms, size * rows / len(times)) for ms, size in zip(times, sizes, strict=True)]

    async def trim(
        self, partition: int, bandit_uid: str, *, before_ms: int, count: int, keep_ms: int | None = None
    ) -> int:
        """Drop the oldest rows decided before ``before_ms``, at most ``count``; return the number of dropped
        rows.

        If there are any, no row from before then is made from now on. ``keep_ms``: for how long rows of the
        bandit are kept from now on.
        """
        check_positive("count", count)
        how = [before_ms, count, "" if keep_ms is None else keep_ms]
        return await drop_rows(self._redis, partition, bandit_uid, how)


def row_keys(partition: int, learner: LearnerId) -> list[str]:
    """The keys with which scripts make a row of a learner."""
    names = keys.of_partition(partition, keys.deleted, keys.row_logs)
    return [*names, keys.rows(partition, learner), keys.row_times(partition, learner.bandit_uid)]


def field_of(row: RowWrite) -> str:
    return keys.row_field(row.issued_ms, row.decision.id)


def row_record(row: RowWrite, memory: StoreMemory) -> bytes:
    """The record of a row; b"" makes no row: the decision has no record, or the store has no room."""
    return b"" if memory.is_reached(Level.OPTIONAL) else row.record


async def erase_rows(redis: RedisClient, partition: int, learner: LearnerId, entry_id: str) -> None:
    """Drop the rows of decisions made without knowledge of the entry. A round trip for each ``STEP`` rows."""
    names = [keys.rows(partition, learner), keys.row_times(partition, learner.bandit_uid)]
    cursor = b"0"
    while True:
        arguments: list[Argument] = [learner.name, entry_order(entry_id)[1], cursor, STEP]
        cursor = await redis.script("erase_rows", names, arguments)
        if cursor == b"0":
            return


async def erase_named_rows(redis: RedisClient, partition: int, learner: LearnerId, names: Names) -> None:
    """Drop the rows of a learner whose records ``names`` accepts. Reads them all, ``READ`` at a time."""
    names_of_rows = [keys.rows(partition, learner), keys.row_times(partition, learner.bandit_uid)]
    async for fields in redis.scan_members("HSCAN", names_of_rows[0], "*"):
        for start in range(0, len(fields), READ):
            together = fields[start : start + READ]
            values = await redis.command("HMGET", names_of_rows[0], *together)
            erasable = [
                field
                for field, value in zip(together, values, strict=True)
                if value is not None and names(_stored("", learner, value).record)
            ]
            if erasable:
                await redis.script("drop_rows", names_of_rows, [learner.name, *erasable])


async def erase_all_rows(redis: RedisClient, partition: int, bandit_uid: str) -> None:
    """Drop the rows of all learners of a deleted bandit. A round trip for each ``STEP`` rows."""
    while await drop_rows(redis, partition, bandit_uid, ["", STEP, ""]) == STEP:
        pass


async def drop_rows(redis: RedisClient, partition: int, bandit_uid: str, how: Sequence[Argument]) -> int:
    names = [keys.row_times(partition, bandit_uid), keys.rows(partition, LearnerId(bandit_uid, ""))]
    names.append(keys.row_logs(partition))
    return int(await redis.script("trim_rows", names, [bandit_uid, *how]))


def _stored(position: str, learner: LearnerId, value: bytes) -> StoredRow:
    """Decode a row as written by rows.lua."""
    _, lengths, texts = value.split(b":", 2)
    record, _, candidates = lengths.partition(b"+")
    stop = int(record)
    end = stop + int(candidates or 0)
    return StoredRow(position, learner, texts[:stop], texts[end:], texts[stop:end])
