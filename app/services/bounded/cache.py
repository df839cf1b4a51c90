"""The one cache of the service: least recently used values, bounded in bytes."""

from __future__ import annotations

from collections import OrderedDict
from typing import Generic, TypeVar

T = TypeVar("T")


class BoundedCache(Generic[T]):
    """Least recently used values, bounded in bytes; the newest one stays whatever its size."""

    def __init__(self, capacity_bytes: int) -> None:
        self._capacity = capacity_bytes
        self._held: OrderedDict[str, tuple[T, int]] = OrderedDict()
        self.bytes = 0

    def __len__(self) -> int:
        return len(self._held)

    def get(self, name: str) -> T | None:
        held = self._held.get(name)
        if held is None:
            return None
        self._held.move_to_end(name)
        return held[0]

    def put(self, name: str, value: T, size: int) -> None:
        self.drop(name)
        self._held[name] = (value, size)
        self.bytes += size
        while self.bytes > self._capacity and len(self._held) > 1:
            self.bytes -= self._held.popitem(last=False)[1][1]

    def clear(self) -> None:
        self._held.clear()
        self.bytes = 0

    def drop(self, name: str) -> None:
        self.bytes -= self._held.pop(name, (None, 0))[1]
