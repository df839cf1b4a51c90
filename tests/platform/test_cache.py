"""The bounded cache, compared with a model: a list of (key, value, size), least recently used first."""

from __future__ import annotations

import gc
import weakref

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from app.platform.cache import BoundedCache

pytestmark = pytest.mark.rest

CAPACITY = 10
KEYS = st.sampled_from("abcdef")


class CacheAndModel(RuleBasedStateMachine):
    """All operations on a cache and on its model."""

    cache_type: type[BoundedCache[str, int]] = BoundedCache

    def __init__(self) -> None:
        super().__init__()
        self.cache = self.cache_type(CAPACITY)
        self.model: list[tuple[str, int, int]] = []
        self.made = 0

    def found(self, key: str) -> tuple[str, int, int] | None:
        return next((entry for entry in self.model if entry[0] == key), None)

    @rule(key=KEYS, size=st.integers(0, CAPACITY + 5))
    def put(self, key: str, size: int) -> None:
        self.made += 1
        self.cache.put(key, self.made, size)
        self.model = [entry for entry in self.model if entry[0] != key] + [(key, self.made, size)]
        while sum(entry[2] for entry in self.model) > CAPACITY and len(self.model) > 1:
            self.model = self.model[1:]

    @rule(key=KEYS)
    def get(self, key: str) -> None:
        entry = self.found(key)
        assert self.cache.get(key) == (entry and entry[1])
        if entry is not None:
            self.model.remove(entry)
            self.model.append(entry)

    @rule(key=KEYS)
    def peek(self, key: str) -> None:
        entry = self.found(key)
        assert self.cache.peek(key) == (entry and entry[1])

    @rule(key=KEYS)
    def drop(self, key: str) -> None:
        self.cache.drop(key)
        self.model = [entry for entry in self.model if entry[0] != key]

    @rule()
    def clear(self) -> None:
        self.cache.clear()
        self.model = []

    @invariant()
    def they_agree(self) -> None:
        assert list(self.cache) == [entry[0] for entry in self.model]
        assert len(self.cache) == len(self.model)
        assert {key: key in self.cache for key in "abcdef"} == {
            key: self.found(key) is not None for key in "abcdef"
        }
        assert self.cache.bytes == sum(entry[2] for entry in self.model)
        assert self.cache.bytes <= CAPACITY or len(self.cache) == 1


CacheAndModel.TestCase.settings = settings(max_examples=40)
TestCacheAndModel = CacheAndModel.TestCase


def test_a_value_that_was_dropped_is_not_held():
    class Value:
        pass

    cache: BoundedCache[int, Value] = BoundedCache(1)
    values = [Value() for _ in range(3)]
    watched = [weakref.ref(value) for value in values]
    for key, value in enumerate(values):
        cache.put(key, value, 1)
    del values, value
    gc.collect()
    assert [ref() is not None for ref in watched] == [False, False, True]
