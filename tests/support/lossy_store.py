"""A real store between whose calls a test may step: replies lost, calls refused, calls held back."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable
from typing import Any

from app.platform.errors import Unavailable
from app.storage.part import RedisPart
from app.storage.store import Store


class LossyStore:
    """Passes every call on to ``store``. Names of calls are those of attribute and method: "rewards.append".

    ``lose``    names of calls whose next reply is lost: the call is made, and fails
    ``refuse``  names of calls that fail without being made, until taken out
    ``hold``    name -> event: replies of these calls wait for it; ``held`` counts those that wait
    ``before``  name -> what to do once before the next call of that name
    ``calls``   how often each was made
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self.lose: list[str] = []
        self.refuse: set[str] = set()
        self.hold: dict[str, asyncio.Event] = {}
        self.held: dict[str, int] = defaultdict(int)
        self.before: dict[str, Callable[[], Awaitable[object]]] = {}
        self.calls: dict[str, int] = defaultdict(int)

    def __getattr__(self, name: str) -> Any:
        inner = getattr(self._store, name)
        return _LossyPart(self, name, inner) if isinstance(inner, RedisPart) else inner

    async def close(self) -> None:
        """Nothing: who opened ``store`` closes it, since several services may use it."""


class _LossyPart:
    """One attribute of the store."""

    def __init__(self, store: LossyStore, name: str, part: RedisPart) -> None:
        self._of, self._name, self._part = store, name, part

    def __getattr__(self, method: str) -> Any:
        inner = getattr(self._part, method)
        if not asyncio.iscoroutinefunction(inner):
            return inner
        of, name = self._of, f"{self._name}.{method}"

        async def call(*arguments: Any, **options: Any) -> Any:
            of.calls[name] += 1
            if name in of.refuse:
                raise Unavailable("the store does not answer")
            if name in of.before:
                await of.before.pop(name)()
            answer = await inner(*arguments, **options)
            if name in of.hold:
                of.held[name] += 1
                await of.hold[name].wait()
                of.held[name] -= 1
            if name in of.lose:
                of.lose.remove(name)
                raise Unavailable("the store does not answer")
            return answer

        return call
