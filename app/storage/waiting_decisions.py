"""Logged decisions on Redis, and what becomes due by the clock."""

from __future__ import annotations

from collections.abc import Sequence

from app.storage import redis_keys as keys
from app.storage.decision_rows import field_of, row_keys, row_record
from app.storage.memory import Level
from app.storage.part import RedisPart
from app.storage.redis_client import Argument
from app.storage.types import Activated, DefaultWrite, Due, RowWrite
from app.storage.types.decisions import DecisionId, LearnerId


class WaitingDecisions(RedisPart):
    """Decisions which wait for rewards, or for a later activation. Records are opaque.

    Any number of processes may do due work at the same time.

    ``expires_ms``, ``known_entry``: of the decision, as in ``RewardWrite``. One whose rewards the store
    refuses as expired is neither logged nor activated.
    """

    async def log(
        self,
        decision: DecisionId,
        record: bytes,
        *,
        due_ms: int,
        expires_ms: int,
        known_entry: int,
        row: RowWrite | None = None,
    ) -> None:
        """Keep the decision until its defaults are appended, from ``due_ms`` on; and its row."""
        self._memory.check(Level.NEW, "choices that wait for rewards")
        partition = self._partition(decision.learner)
        names = keys.of_partition(partition, keys.decisions, keys.due, keys.refused)
        arguments: list[Argument] = [decision.member, record, due_ms, expires_ms, known_entry]
        if row is not None:
            learner = decision.learner
            names += [*row_keys(partition, learner), keys.forgotten(partition, learner)]
            row_of_log = row_record(row, self._memory)
            arguments += (*learner, field_of(row), row.keep_ms, row_of_log, row.candidates)
        await self._redis.script("log_decision", names, arguments)

    async def activate(
        self,
        decision: DecisionId,
        *,
        expires_ms: int,
        known_entry: int,
        ttl_ms: int,
        record: bytes | None,
        due_ms: int,
        row: RowWrite | None = None,
    ) -> Activated:
        """Mark the decision as shown, for ``ttl_ms``, log a given record, and keep the decision's row."""
        self._memory.check(Level.REWARDS, "activations")
        partition = self._partition(decision.learner)
        names = [keys.active(partition, decision), keys.decisions(partition), keys.due(partition)]
        names += [
            keys.forgotten(partition, decision.learner),
            keys.refused(partition),
        ]
        arguments: list[Argument] = [decision.member, ttl_ms, record or b"", due_ms, known_entry, expires_ms]
        if row is not None:
            names += row_keys(partition, decision.learner)
            arguments += (*decision.learner, field_of(row), row.keep_ms, row_record(row, self._memory))
        outcome: Activated = (await self._redis.script("activate", names, arguments)).decode()
        return outcome

    async def is_active(self, decision: DecisionId) -> bool:
        key = keys.active(self._partition(decision.learner), decision)
        return bool(await self._redis.command("EXISTS", key))

    async def due(self, partition: int, now_ms: int, count: int) -> Due:
        """At most about ``count`` of each kind."""
        names = keys.of_partition(partition, keys.decisions, keys.due, keys.idle, keys.erase)
        members, records, idle, erase = await self._redis.script("due", names, [now_ms, count])
        decisions = [DecisionId.of_member(member.decode()) for member in members]
        return Due(
            decisions=list(zip(decisions, records, strict=True)),
            idle=[LearnerId.of_member(member.decode()) for member in idle],
            erase={
                LearnerId.of_member(member.decode()): entry_id.decode()
                for member, entry_id in zip(erase[::2], erase[1::2], strict=True)
            },
        )

    async def append_defaults(
        self, partition: int, decisions: Sequence[DecisionId], writes: Sequence[DefaultWrite]
    ) -> str | None:
        """Append the defaults still owed by these decisions of a partition, and remove the decisions from the
        logged.

        Returns the last entry id, if any. Of several calls for one decision only one appends. They are never
        refused: a waiting decision is owed its default.
        """
        if not decisions:
            return None
        names = keys.of_partition(
            partition, keys.log, keys.watermark, keys.decisions, keys.due, keys.seen_ends
        )
        arguments: list[Argument] = [len(decisions), *(decision.member for decision in decisions)]
        for write in writes:
            learner = write.decision.learner
            ends_ms = keys.seen_ends_ms(write.expires_ms)
            names += (keys.seen_until(partition, ends_ms), keys.forgotten(partition, learner))
            names.append(keys.rows(partition, learner))
            arguments += (write.decision.member, *learner, write.known_entry, write.payload)
            arguments += (ends_ms, keys.seen_first_field(learner, write.decision_key))
            field = keys.row_field(write.issued_ms, write.decision.id) if write.logged else ""
            arguments += (field, write.logged)
        last: bytes | None = await self._redis.script("append_defaults", names, arguments)
        return last.decode() if last else None

    async def drop_expired(self, partition: int, *, margin_ms: int, count: int) -> int:
        """Drop the records of decisions whose expiry was ``margin_ms`` ago by the store's clock.

        Their dedupe keys go, and the records of learners forgotten before all of them. In the same step,
        rewards of all decisions with a need for these records are refused from now on, for good. At most
        ``count`` of each kind; returns how many were dropped.
        """
        names = keys.of_partition(partition, keys.log, keys.watermark, keys.refused, keys.seen_ends, keys.due)
        names += [keys.forgotten_until(partition), keys.seen_until(partition), keys.forgotten(partition)]
        return int(await self._redis.script("drop_expired", names, [margin_ms, count]))
