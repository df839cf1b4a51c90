"""The contract of an engine for arms: the needs of a kind of catalogue with arms outside of memory.

The store has all arms, with their features and documents. An engine has a copy of them, and proposes arms of
large inner product; the service reads these from the store, checks the filter, and scores them in float64. So
an engine may be late, approximate, or away, and still no answer is wrong:

    ``EngineIndex``     the arms changed since the engine was written to, and the state of the copy
    ``Proposals``       one request: asks the engine, and reads its proposals into a small snapshot
    ``EngineArms``      reads and writes arms, by the store
    ``arm_following``   the worker of the copy, in one process at a time
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
    """The answering server is not an engine that we can use."""


class CollectionGone(Unavailable):
    """The engine has no collection of this name: somebody dropped the collection, or the engine is another
    one.
    """


class NotLoaded(Unavailable):
    """The engine has the collection, but not, or not wholly, in its memory."""


class ArmEngine(ABC):
    """One engine, as a process of the service uses it. All calls are made in the event loop.

    A collection is a copy of the arms of one catalogue, under a name of letters, digits and ``_``. A
    collection is never altered: it is made whole, filled, searched, and dropped. Every call but ``open``,
    ``close`` and ``check`` raises Unavailable while the engine does not answer, at once if this is known.

    ``fault``      why this engine cannot be used whenever it answers, such as a too old version
    ``settled_s``  after so many seconds searches see all arms of ``write``
    """

    fault: str | None = None
    settled_s: float = 0.0

    @abstractmethod
    async def open(self) -> None:
        """Connect. Called once, before all others.

        An engine which is away is no reason not to start: rewards and other catalogues do not need it.
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
        """The dimension of a collection; None: there is none. Searches follow soon: load the collection."""

    @abstractmethod
    async def collections(self) -> Sequence[str]:
        """The names of all collections, also of others' ones."""

    @abstractmethod
    async def drop(self, name: str) -> None:
        """Drop a collection, if it is there."""

    @abstractmethod
    async def write(self, name: str, arms: Sequence[EngineArm], deleted: Sequence[str]) -> None:
        """Insert or replace arms, and delete others, some of which are not there.

        Returns when all are written; searches see them after ``settled_s``. A repeated call changes nothing.
        Called by one process at a time for a collection, with 1,000 arms at most. Raises CollectionGone,
        NotLoaded.
        """

    @abstractmethod
    async def seal(self, name: str) -> None:
        """Build the structures of searches now. Called after many arms were written, once a minute at most.

        An engine which builds them by itself does nothing.
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

        Shapes: query (d,). ``limit``: a power of two, at most ``MOST_FOUND``; fewer ids say: there are no
        more. ``arm_filter``: no matching arm may be missing; the caller checks and drops others. ``ef``: how
        wide to search a graph. Raises CollectionGone: the collection is made again.
        """


class EngineKind(ABC):
    """A kind of catalogue whose arms are in an engine. One object for each process, made without arguments.

    Users write the name of its entry point: ``"index": {"kind": NAME}``.

    ``title``      of the engine, for sentences: a name
    ``setting``    the environment variable with its address
    ``least_dim``  of its arms
    """

    title: ClassVar[str]
    setting: ClassVar[str]
    least_dim: ClassVar[int] = 1

    @abstractmethod
    def engine(self, settings: Settings) -> ArmEngine | None:
        """The engine named by the settings; None: they name none. Called once for each service."""

    @contextmanager
    def serving(self, settings: Settings) -> Iterator[Settings]:
        """Run a server of its own beside the service, where the settings ask for one.

        Entered by ``shortlist serve`` before any process of the service starts, and left when all have ended.
        Yields the settings with its address. Raises StartupError.
        """
        yield settings
