"""The contract of an engine that finds arms: what a kind of catalogue needs whose arms are not in memory.

The store has all arms, with their features and documents. An engine has a copy of them, and proposes arms of
large inner product; the service reads these from the store, checks the filter, and scores them in float64. So
an engine may be late, approximate, or away, and no answer is wrong for that:

    ``EngineIndex``     the arms that changed since the engine was written to, and what is known of the copy
    ``Proposals``       one request: asks the engine, and reads what it proposes into a small snapshot
    ``EngineArms``      reads and writes arms, by the store
    ``arm_following``   the worker that keeps the copy, in one process at a time
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from app.filters.attributes import Document
from app.filters.filter import Filter
from app.platform.errors import Unavailable
from app.platform.settings import Settings

MOST_FOUND = 16_384  # arms that one search may be asked for


@dataclass(frozen=True, slots=True)
class EngineArm:
    """An arm as an engine gets it. Shape: features (d,). ``document``: its tags and its metadata."""

    id: str
    revision: int
    features: NDArray[np.float32]
    document: Document


@dataclass(frozen=True, slots=True)
class EngineName:
    """``kind`` of the catalogues, ``title`` of the engine in sentences. ``why_absent``: if there is none."""

    kind: str
    title: str
    why_absent: str


class WrongEngine(Unavailable):
    """What answers is not an engine that we can use."""


class CollectionGone(Unavailable):
    """The engine has no collection of this name: somebody dropped it, or it is another engine."""


class NotLoaded(Unavailable):
    """The engine has the collection, but not in its memory, or not all of it."""


class ArmEngine(ABC):
    """One engine, as a process of the service uses it. All calls are made in the event loop.

    A collection is a copy of the arms of one catalogue, under a name of letters, digits and ``_``. It is
    never altered: it is made whole, filled, searched, and dropped. Every call but ``open``, ``close`` and
    ``check`` raises Unavailable while the engine does not answer, and does so at once if that is known.

    ``fault``      why this engine cannot be used whenever it answers, such as a version that is too old
    ``settled_s``  after so many seconds searches are answered from all that ``write`` has written
    """

    fault: str | None = None
    settled_s: float = 0.0

    @abstractmethod
    async def open(self) -> None:
        """Connect. Called once, before all others.

        An engine that is away is no reason not to start: rewards and other catalogues do not need it.
        Raises StartupError: a package is not installed, or the address is none.
        """

    @abstractmethod
    async def close(self) -> None:
        """Let go of everything. Called once, after all others."""

    @abstractmethod
    def check(self) -> None:
        """Return if the engine can be used now. Called before a catalogue is made.

        Raises WrongEngine: never; Unavailable: not now.
        """

    @abstractmethod
    async def create(self, name: str, dim: int, *, m: int, ef_construction: int) -> None:
        """Make an empty collection, ready to be written and searched.

        ``m``, ``ef_construction``: what the catalogue asks of a graph; another structure may ignore them.
        """

    @abstractmethod
    async def dim(self, name: str) -> int | None:
        """The dimension of a collection; None: there is none. It is searched soon: load it."""

    @abstractmethod
    async def collections(self) -> Sequence[str]:
        """The names of all collections, also of those that others made."""

    @abstractmethod
    async def drop(self, name: str) -> None:
        """Drop a collection, if it is there."""

    @abstractmethod
    async def write(self, name: str, arms: Sequence[EngineArm], deleted: Sequence[str]) -> None:
        """Insert or replace arms, and delete others, some of which are not there.

        Returns when all of it is written; then searches have it after ``settled_s``. To repeat a call changes
        nothing. Called by one process at a time for a collection, with 1,000 arms at most. Raises
        CollectionGone, NotLoaded.
        """

    @abstractmethod
    async def seal(self, name: str) -> None:
        """Build now what searches need. Called after many arms were written, once a minute at most.

        An engine that builds it by itself does nothing.
        """

    @abstractmethod
    async def search(
        self,
        collection: str,
        query: NDArray[np.float32],
        limit: int,
        *,
        arm_filter: Filter | None = None,
        ef: int,
    ) -> list[str]:
        """Ids of arms of large inner product with the query, best first. Called for every choice.

        Shapes: query (d,). ``limit``: a power of two, at most ``MOST_FOUND``; fewer ids say that there are no
        more. ``arm_filter``: no arm may be missing that matches it; others are checked and dropped by the
        caller. ``ef``: how wide to search a graph. Raises CollectionGone: it is made again.
        """


class EngineKind(ABC):
    """A kind of catalogue whose arms are in an engine. One object for each process, made without arguments.

    The name of its entry point is what users write: ``"index": {"kind": NAME}``.

    ``title``      of the engine, for sentences: a name
    ``setting``    the environment variable with its address
    ``least_dim``  of the arms that it takes
    """

    title: ClassVar[str]
    setting: ClassVar[str]
    least_dim: ClassVar[int] = 1

    @abstractmethod
    def engine(self, settings: Settings) -> ArmEngine | None:
        """The engine that the settings name; None: they name none. Called once for each service."""

    @contextmanager
    def serving(self, settings: Settings) -> Iterator[Settings]:
        """Run a server of its own beside the service, where the settings ask for one.

        Entered by ``shortlist serve`` before any process of the service starts, and left when all have ended.
        Yields the settings that name it. Raises StartupError.
        """
        yield settings
