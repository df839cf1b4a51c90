"""Rewards sent in the background, many at a time. None is lost: what was not sent is sent again, or named.

``Unsent`` is the buffer, which knows what is still to be sent. ``RewardSender`` (a thread) and
``AsyncRewardSender`` (a task) decide when. Each process sends what was added in it.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from itertools import islice
from types import TracebackType
from typing import Self

from shortlist_client.answers import Receipt
from shortlist_client.batches import reward_item
from shortlist_client.bodies import DecisionItem, RewardItem
from shortlist_client.client import AsyncClient, Client
from shortlist_client.errors import Invalid, InvalidArgument, RewardsUnsent
from shortlist_client.processes import OfOneProcess
from shortlist_client.routes import encoded, given_of

BATCH, BUFFER, EVERY_S = 500, 10_000, 1.0
FLUSH_S = 60.0

OnRejected = Callable[[RewardItem, str], None]


class Unsent:
    """At most ``most`` rewards that the service has not taken yet, and the ``error`` that keeps them here.

    ``attempts`` were made; ``hurry``: until all is sent or an attempt fails; ``closed`` is the end.

    Rejected ones go to ``on_rejected``; without it they are kept, and named by the next error.
    """

    def __init__(self, most: int, batch: int, on_rejected: OnRejected | None) -> None:
        if not 1 <= batch <= most:
            raise InvalidArgument("batch must be at least 1, and not more than buffer")
        self._most = most
        self._batch = batch
        self._items: deque[RewardItem] = deque()
        self._rejected: list[tuple[RewardItem, str]] = []
        self._on_rejected = on_rejected or (lambda item, code: self._rejected.append((item, code)))
        self.error: Exception | None = None
        self.attempts = 0
        self.hurry = False
        self.closed = False
        self.accepted = self.duplicate = 0

    def __len__(self) -> int:
        return len(self._items)

    @property
    def is_full(self) -> bool:
        return len(self._items) + len(self._rejected) >= self._most

    def may_go_on(self) -> bool:
        """There is room for another reward, or there will be none by itself."""
        return not self.is_full or self.error is not None or len(self._rejected) >= self._most or self.closed

    def has_work(self) -> bool:
        return self.closed or bool(self._items)

    def is_urgent(self) -> bool:
        """Not to wait for more: a full batch or buffer, unless the one before failed; a flush; the end."""
        is_due = len(self._items) >= self._batch or self.is_full
        return self.closed or self.hurry or (is_due and self.error is None)

    def is_flushed(self, before: int) -> bool:
        """All is sent, or an attempt has failed since there had been ``before`` attempts."""
        return not self._items or (self.error is not None and self.attempts > before)

    def add(self, item: RewardItem) -> None:
        """Raises RewardsUnsent without room, InvalidArgument after the end or of what cannot be sent, which
        would keep all behind it from being sent: then it is not taken.
        """
        self.check_open()
        encoded(given_of(item))
        if self.is_full:
            raise self.failure() or RewardsUnsent(list(self._items), [], "the buffer is full")
        self._items.append(item)

    def check_open(self) -> None:
        if self.closed:
            raise InvalidArgument("this sender is closed")

    def batch(self) -> list[RewardItem]:
        """The rewards to send next; they stay here until they are settled."""
        return list(islice(self._items, self._batch))

    def settle(self, batch: list[RewardItem], receipt: Receipt) -> None:
        """The service has answered for the first rewards."""
        self._remove(len(batch))
        self.error = None
        self.hurry = self.hurry and bool(self._items)
        self.attempts += 1
        self.accepted += receipt.accepted
        self.duplicate += receipt.duplicate
        for rejected in receipt.rejected:
            self._on_rejected(batch[rejected.index], rejected.code)

    def refuse(self, batch: list[RewardItem], error: Exception) -> None:
        """The batch was not taken: rewards that the error names are rejected, the others stay."""
        wrong = {place for place in _places(error) if place < len(batch)}
        if wrong:
            self._remove(len(batch))
            self._items.extendleft(
                item for place, item in reversed(list(enumerate(batch))) if place not in wrong
            )
            for place in sorted(wrong):
                self._on_rejected(batch[place], "invalid")
        self.error = None if wrong else error
        self.hurry = self.hurry and self.error is None and bool(self._items)
        self.attempts += 1

    def raise_failure(self, late: str = "") -> None:
        if failure := self.failure(late):
            raise failure

    def failure(self, late: str = "") -> RewardsUnsent | None:
        """What is to be said of rewards that are not sent, or were rejected since it was said last.

        ``late``: why no more is waited for, where no attempt has failed.
        """
        rejected, self._rejected = self._rejected, []
        cause = self.error or late
        unsent = list(self._items) if cause else []
        if not rejected and not unsent:
            return None
        failure = RewardsUnsent(unsent, rejected, cause)
        failure.__cause__ = self.error
        return failure

    def _remove(self, count: int) -> None:
        for _ in range(count):
            self._items.popleft()


class RewardSender(OfOneProcess):
    """Sends rewards in a thread of its own, one in each process; to be used in a ``with``, or closed.

    ``batch``        so many rewards are sent together, ``buffer`` at most are held: then ``add`` waits
    ``every_s``      how long a reward waits for others, and how long after a failure it is tried again
    ``on_rejected``  called in the thread with every reward that the service refuses, and its code

    ``flush`` and ``close`` raise RewardsUnsent unless everything was sent in ``timeout_s`` and, without
    ``on_rejected``, taken.
    """

    def __init__(
        self,
        client: Client,
        *,
        batch: int = BATCH,
        buffer: int = BUFFER,
        every_s: float = EVERY_S,
        on_rejected: OnRejected | None = None,
    ) -> None:
        super().__init__()
        self._client = client
        self._every_s = every_s
        self._empty = partial(Unsent, buffer, batch, on_rejected)
        self.state = self._empty()
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None

    def add(
        self,
        decision: str | DecisionItem,
        value: float = 1.0,
        arm: str | None = None,
        *,
        reward_id: str | None = None,
        signal: str | None = None,
        at: int | None = None,
    ) -> None:
        """Send a reward soon. Raises RewardsUnsent when the buffer is full and the service does not take any:
        then this reward is not in the buffer.
        """
        with self._changed:
            self._changed.wait_for(self.state.may_go_on)
            self.state.add(reward_item(decision, value, arm, reward_id=reward_id, signal=signal, at=at))
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name="shortlist-rewards", daemon=True)
                self._thread.start()
            self._changed.notify_all()

    def flush(self, timeout_s: float = FLUSH_S) -> None:
        """Send all that was added. Raises RewardsUnsent."""
        with self._changed:
            self.state.check_open()
            before = self.state.attempts
            self.state.hurry = len(self.state) > 0
            self._changed.notify_all()
            is_done = self._changed.wait_for(lambda: self.state.is_flushed(before), timeout_s)
            self.state.raise_failure("" if is_done else _late(timeout_s))

    def close(self, timeout_s: float = FLUSH_S) -> None:
        """Send all that was added, and stop. Raises RewardsUnsent, whose ``unsent`` are the ones left."""
        with self._changed:
            self.state.closed = True
            self._changed.notify_all()
        if self._thread is not None:
            self._thread.join(timeout_s)
        with self._changed:
            is_done = self._thread is None or not self._thread.is_alive()
            self.state.raise_failure("" if is_done else _late(timeout_s))

    def begin_anew(self) -> None:
        """The parent's thread is not here; what was added before is sent by the parent."""
        closed, self.state = self.state.closed, self._empty()
        self.state.closed = closed
        self._changed = threading.Condition()
        self._thread = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _work(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(self.state.has_work)
                self._changed.wait_for(self.state.is_urgent, self._every_s)
                batch, last = self.state.batch(), self.state.closed
            if batch:
                self._send(batch)
            if last and (not self.state or self.state.error):
                return

    def _send(self, batch: list[RewardItem]) -> None:
        try:
            receipt = self._client.reward_batch(batch)
            with self._changed:
                self.state.settle(batch, receipt)
                self._changed.notify_all()
        except Exception as error:  # whatever it is, flush and close raise it
            with self._changed:
                self.state.refuse(batch, error)
                self._changed.notify_all()


class AsyncRewardSender(OfOneProcess):
    """Sends rewards in a task of its own; to be used in an ``async with``. As ``RewardSender`` otherwise."""

    def __init__(
        self,
        client: AsyncClient,
        *,
        batch: int = BATCH,
        buffer: int = BUFFER,
        every_s: float = EVERY_S,
        on_rejected: OnRejected | None = None,
    ) -> None:
        super().__init__()
        self._client = client
        self._every_s = every_s
        self._empty = partial(Unsent, buffer, batch, on_rejected)
        self.state = self._empty()
        self._changed = asyncio.Condition()
        self._task: asyncio.Task[None] | None = None

    async def add(
        self,
        decision: str | DecisionItem,
        value: float = 1.0,
        arm: str | None = None,
        *,
        reward_id: str | None = None,
        signal: str | None = None,
        at: int | None = None,
    ) -> None:
        """Send a reward soon. Raises RewardsUnsent when the buffer is full and the service does not take any:
        then this reward is not in the buffer.
        """
        self.state.check_open()
        self._start()
        async with self._changed:
            await self._changed.wait_for(self.state.may_go_on)
            self.state.add(reward_item(decision, value, arm, reward_id=reward_id, signal=signal, at=at))
            self._changed.notify_all()

    async def flush(self, timeout_s: float = FLUSH_S) -> None:
        """Send all that was added. Raises RewardsUnsent."""
        self.state.check_open()
        if self.state:
            self._start()
        late = ""
        async with self._changed:
            before = self.state.attempts
            self.state.hurry = len(self.state) > 0
            self._changed.notify_all()
            try:
                async with asyncio.timeout(timeout_s):
                    await self._changed.wait_for(lambda: self.state.is_flushed(before))
            except TimeoutError:
                late = _late(timeout_s)
            self.state.raise_failure(late)

    async def close(self, timeout_s: float = FLUSH_S) -> None:
        """Send all that was added, and stop. Raises RewardsUnsent, whose ``unsent`` are the ones left."""
        late = ""
        if self._task is not None:
            self._start()
            async with self._changed:
                self.state.closed = True
                self._changed.notify_all()
            _, running = await asyncio.wait({self._task}, timeout=timeout_s)
            late = _late(timeout_s) if running else ""
        self.state.closed = True
        self.state.raise_failure(late)

    def begin_anew(self) -> None:
        """The parent's loop is not here; what was added before is sent by the parent."""
        closed, self.state = self.state.closed, self._empty()
        self.state.closed = closed
        self._task = None

    async def __aenter__(self) -> Self:
        self._start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def _start(self) -> None:
        """Of an event loop that has ended, what it left is sent by the next."""
        task = self._task
        if task is None or task.done() or task.get_loop() is not asyncio.get_running_loop():
            self._changed = asyncio.Condition()
            self._task = asyncio.create_task(self._work(), name="shortlist-rewards")

    async def _work(self) -> None:
        while True:
            async with self._changed:
                await self._changed.wait_for(self.state.has_work)
                with suppress(TimeoutError):
                    async with asyncio.timeout(self._every_s):
                        await self._changed.wait_for(self.state.is_urgent)
                batch, last = self.state.batch(), self.state.closed
            if batch:
                await self._send(batch)
            if last and (not self.state or self.state.error):
                return

    async def _send(self, batch: list[RewardItem]) -> None:
        try:
            receipt = await self._client.reward_batch(batch)
            async with self._changed:
                self.state.settle(batch, receipt)
                self._changed.notify_all()
        except Exception as error:  # whatever it is, flush and close raise it
            async with self._changed:
                self.state.refuse(batch, error)
                self._changed.notify_all()


def _late(timeout_s: float) -> str:
    return f"not all was sent in {timeout_s:g} s"


def _places(error: Exception) -> set[int]:
    """Which rewards of a batch an error is about."""
    if not isinstance(error, Invalid):
        return set()
    locs = [each.loc for each in error.errors if len(each.loc) > 2]
    return {place for loc in locs if isinstance(place := loc[2], int)}
