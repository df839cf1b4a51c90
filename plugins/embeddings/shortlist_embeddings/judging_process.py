"""A log is judged in a process of its own, so that choices wait neither for the interpreter nor for a core.

It has the lowest priority. The service sends the task and then rows as they are stored; the process makes
arrays of them, judges, and answers once. Each message is 8 bytes, its length, and msgpack. An empty one ends
the rows; without it the service is gone, and the process ends.
"""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
from array import array
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import suppress
from typing import BinaryIO

import msgspec
import numpy as np

from shortlist.embedding import own_rewards
from shortlist.embedding.own_rewards import Contexts, Rewards
from shortlist.errors import InvalidParameter
from shortlist_service.catalogues import Catalogue
from shortlist_service.decision_log import StoredRow, Terms, counted_rewards, row_of
from shortlist_service.errors import Invalid, Unavailable, counted
from shortlist_service.policies import Bandit
from shortlist_service.tokens import decision_of
from shortlist_service.work import MEASURING

MAX_JUDGED_DIM = 256  # of the features with the coordinates, and of a context with them
MAX_JUDGED_REWARDS = 1_000_000  # of a log, the newest
MAX_CONTEXT_NUMBERS = 1 << 25  # of the rewards that are judged, 256 MB
SEED = 0
LENGTH_BYTES = 8
LOWEST_PRIORITY = 19
COMMAND = "from shortlist_embeddings.judging_process import main; main()"
ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}


class JudgingTask(msgspec.Struct, frozen=True):
    """The task of judging.

    ``ids``             of the arms
    ``table``           their features, float32 row after row
    ``dim``             number of coordinates
    ``weights``         of the sum of signals; None: there are none
    ``defaults``        the value of each missing signal
    ``context_dim``     count of a context's numbers; 0: there is none
    ``interactions``    number of the arms' directions for the context; None: all
    """

    ids: Sequence[str]
    table: bytes
    dim: int
    weights: Mapping[str, float] | None = None
    defaults: Mapping[str, float] = {}
    context_dim: int = 0
    interactions: int | None = None


class JudgedLog(msgspec.Struct, frozen=True):
    """The answer. ``refused``: why nothing could be judged. ``counts``: rewards of each arm, int64.

    ``coordinates``: ``dim`` numbers of each arm, float64; empty where they are not taken.
    """

    refused: str = ""
    before: float = 0.0
    after: float = 0.0
    error: float = 0.0
    judged: int = 0
    rewards: int = 0
    keys: int = 0
    counts: bytes = b""
    coordinates: bytes = b""


def check_judged(bandit: Bandit, source: Catalogue, dim: int, liked: str | None) -> None:
    """Raise Invalid unless ``dim`` coordinates beside the arms of ``source`` can be judged by its log.

    ``liked``: the signal that is judged alone; None: their weighted sum.
    """
    record = bandit.record
    if record.scope != "per_key":
        raise Invalid("a bandit of scope global has no keys to compare", path=())
    if record.position not in (None, "auto"):
        reason = "its rewards depend on places, which the judgement does not know"
        raise Invalid(f"a bandit with a stated position cannot have its log judged: {reason}", path=())
    if liked is not None and liked not in (record.signals or {}):
        signals = ", ".join(record.signals or {})
        message = f"no such signal: there are {signals}" if signals else "the bandit has no signals"
        raise Invalid(message, path=("signal",))
    size = source.dim + dim
    if bandit.context is not None:
        count = record.interactions
        size += (count if isinstance(count, int) else size) * bandit.context.encoding.dim
    if size > MAX_JUDGED_DIM:
        with_context = "" if bandit.context is None else " and the context"
        features = counted(source.dim, "feature", "features")
        message = f"dim and the {features} of {source.name}{with_context} come to {size:,} "
        raise Invalid(f"{message}numbers, {MAX_JUDGED_DIM} at most", path=("dim",))


async def judging_task(bandit: Bandit, source: Catalogue, dim: int, liked: str | None) -> JudgingTask:
    """The task that ``check_judged`` let pass. It has all arms, so they are read in a thread."""
    snapshot, record = source.index.snapshot(), bandit.record

    def read_arms() -> tuple[Sequence[str], bytes]:
        rows = snapshot.eligible()
        ids = [snapshot.id_of(row) for row in rows.tolist()]
        return ids, snapshot.features_of(rows).astype("<f4").tobytes()

    ids, table = await MEASURING.run(read_arms)
    return JudgingTask(
        ids,
        table,
        dim,
        bandit.weights if liked is None else {liked: 1.0},
        {name: rule.default for name, rule in (record.signals or {}).items()},
        0 if bandit.context is None else bandit.context.encoding.dim,
        record.interactions if isinstance(record.interactions, int) else None,
    )


async def judge(task: JudgingTask, pages: AsyncIterator[Sequence[StoredRow]]) -> JudgedLog:
    """Have these rows judged; cancelled, the process ends at once.

    Raises Invalid (they say too little), Unavailable (the process ended by itself).
    """
    ours, theirs = socket.socketpair()
    # Not by asyncio, which copies the tables of this memory for it: 9 ms, in which nothing is chosen.
    with theirs:
        process = subprocess.Popen(  # noqa: ASYNC220, S603 - all arguments are our own
            [sys.executable, "-c", COMMAND],
            stdin=theirs.fileno(),
            stdout=theirs.fileno(),
            env=os.environ | ONE_THREAD,
        )
    reader, writer = await asyncio.open_connection(sock=ours)
    try:
        writer.write(_framed(msgspec.msgpack.encode(task)))
        async for page in pages:
            rows = [(row.record, row.rewards) for row in page if row.rewards]
            writer.write(_framed(msgspec.msgpack.encode(rows)))
            await writer.drain()
        writer.write(_framed(b""))
        await writer.drain()
        size = int.from_bytes(await reader.readexactly(LENGTH_BYTES), "little")
        answer = msgspec.msgpack.decode(await reader.readexactly(size), type=JudgedLog)
    except (OSError, asyncio.IncompleteReadError):
        status = await MEASURING.run(process.wait)
        raise Unavailable(f"the process that judges the log ended with status {status}") from None
    finally:
        writer.close()
        process.kill()
        await MEASURING.run(process.wait)
    if answer.refused:
        raise Invalid(f"the log says too little: {answer.refused}", path=())
    return answer


def main() -> None:
    """The process. It writes nothing if the service is gone."""
    with suppress(AttributeError, OSError):
        os.nice(LOWEST_PRIORITY)
    with suppress(EOFError, BrokenPipeError, KeyboardInterrupt):
        task = msgspec.msgpack.decode(_message(sys.stdin.buffer), type=JudgingTask)
        log = RewardArrays(task)
        while rows := _message(sys.stdin.buffer):
            for record, rewards in msgspec.msgpack.decode(rows, type=list[tuple[bytes, bytes]]):
                log.add(record, rewards)
        sys.stdout.buffer.write(_framed(msgspec.msgpack.encode(_judged(task, log.rewards()))))
        sys.stdout.buffer.flush()


class RewardArrays:
    """The newest rewards of rows that come in the order of time.

    They are float64 one after the other: the number of the key, that of the arm, the value, the context.
    """

    def __init__(self, task: JudgingTask) -> None:
        self._task = task
        self._numbers_of_arms = {arm_id: number for number, arm_id in enumerate(task.ids)}
        self._numbers_of_keys = dict[str, int]()
        default = sum(weight * task.defaults[name] for name, weight in (task.weights or {}).items())
        self._terms = Terms(default, weights=task.weights, defaults=task.defaults)
        self._rewards, self._width = array("d"), 3 + task.context_dim
        self._most = min(MAX_JUDGED_REWARDS, MAX_CONTEXT_NUMBERS // max(task.context_dim, 1))

    def add(self, record: bytes, rewards: bytes) -> None:
        """Take the rewards of one row."""
        row = row_of(decision_of(record), "", rewards, None)
        if row.key is None:
            return
        key = self._numbers_of_keys.setdefault(row.key, len(self._numbers_of_keys))
        context = (row.context or [0.0] * self._task.context_dim) if self._task.context_dim else ()
        for arm_id, value in counted_rewards(row, self._terms)[0].items():
            arm = self._numbers_of_arms.get(arm_id)
            if arm is not None:
                self._rewards.extend((key, arm, value, *context))
        if len(self._rewards) >= 2 * self._most * self._width:
            self._drop_oldest()

    def rewards(self) -> Rewards:
        """All that are kept."""
        self._drop_oldest()
        rewards = np.asarray(self._rewards).reshape(-1, self._width)
        contexts = Contexts(rewards[:, 3:], self._task.interactions) if self._task.context_dim else None
        keys, arms = rewards[:, :2].astype(np.int64).T
        return Rewards(keys, arms, rewards[:, 2], len(self._numbers_of_keys), contexts)

    def _drop_oldest(self) -> None:
        del self._rewards[: max(0, len(self._rewards) - self._most * self._width)]


def _judged(task: JudgingTask, rewards: Rewards) -> JudgedLog:
    table = np.frombuffer(task.table, dtype="<f4").astype(np.float64).reshape(len(task.ids), -1)
    try:
        judgement = own_rewards.judge(rewards, table, task.dim, np.random.default_rng(SEED))
        coordinates = np.empty(0)
        if judgement.is_taken:
            coordinates = own_rewards.coordinates(rewards, table, task.dim, np.random.default_rng(SEED))
    except InvalidParameter as error:
        return JudgedLog(refused=str(error))
    return JudgedLog(
        before=judgement.before,
        after=judgement.after,
        error=judgement.error,
        judged=judgement.judged,
        rewards=len(rewards),
        keys=rewards.key_count,
        counts=np.bincount(rewards.arms, minlength=len(table)).astype("<i8").tobytes(),
        coordinates=coordinates.astype("<f8").tobytes(),
    )


def _framed(message: bytes) -> bytes:
    return len(message).to_bytes(LENGTH_BYTES, "little") + message


def _message(stream: BinaryIO) -> bytes:
    """The next message. Raises EOFError: it has not come whole."""
    head = stream.read(LENGTH_BYTES)
    size = int.from_bytes(head, "little")
    message = stream.read(size)
    if len(head) < LENGTH_BYTES or len(message) < size:
        raise EOFError
    return message
