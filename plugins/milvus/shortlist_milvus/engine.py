"""Milvus, the part used by Shortlist: collections of arms, written by a follower and searched by choices.

A collection is never altered, only made whole, filled, and dropped. All calls are for the event loop.
``pymilvus`` is imported by ``open``, an extra, which takes 105 MB of memory.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import accumulate, pairwise
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from shortlist_milvus.expressions import MOST_TERMS, TERM_CHARS, arm_terms, expression_of
from shortlist_service.engines import (
    ArmEngine,
    CollectionGone,
    EngineArm,
    Filter,
    NotLoaded,
    WrongEngine,
)
from shortlist_service.errors import StartupError, Unavailable

log = logging.getLogger("shortlist.milvus")
T = TypeVar("T")

INSTALL = "pip install -e '.[milvus]' in a checkout"
NOT_INSTALLED = "SHORTLIST_MILVUS_URI is set, but {package} is not installed: " + INSTALL
GONE = "Milvus lacks the collection of this catalogue"
LOADING = "Milvus is still loading the collection of this catalogue"
AWAY = "the engine of the arms (Milvus) does not answer"
# Milvus: upserts came with 2.3.0, and arrays in rows, which filters ask, with 2.3.2.
LEAST_VERSIONS: Mapping[str, tuple[int, int, int]] = {"milvus": (2, 3, 2), "milvus_lite": (3, 0, 0)}
SEARCHED_TOGETHER = 64  # queries that wait for the same answer of the engine
TIMEOUT_S = 5.0
LONG_TIMEOUT_S = 60.0  # of what makes, loads or writes
REST_S = 1.0
LOAD_WAIT_S = 1.0
SETTLED_S = 6.0  # Milvus answers searches of level Bounded from what was written 5 s ago or before

_COLLECTION_ABSENT = 100
# Of a Milvus started a moment ago: collections, replicas, channels, segments and nodes still missing.
_NOT_LOADED = frozenset({101, 103, 106, 201, 202, 400, 401, 500, 501, 503, 600, 601, 602, 901, 902, 903})
_CONNECT_FAILED = 2  # by the client, which says 1 when it got no answer in time; those of Milvus are larger
_GRPC_OPTIONS = {
    # By default gRPC waits up to two minutes before it tries again to connect to a returned engine.
    "grpc.initial_reconnect_backoff_ms": 200,
    "grpc.max_reconnect_backoff_ms": 1_000,
    # A broken connection, as at the replacement of a proxy of Milvus, costs no choice.
    "grpc.service_config": json.dumps(
        {
            "methodConfig": [
                {
                    "name": [{"service": "milvus.proto.milvus.MilvusService", "method": "Search"}],
                    "retryPolicy": {
                        "maxAttempts": 3,
                        "initialBackoff": "0.1s",
                        "maxBackoff": "1s",
                        "backoffMultiplier": 3,
                        "retryableStatusCodes": ["UNAVAILABLE"],
                    },
                }
            ]
        }
    ),
}
_BOUNDED = 2  # as the time that a search guarantees: Milvus takes that of consistency level Bounded


@dataclass(frozen=True, slots=True)
class ArmRow:
    """An arm in a collection. Shape: features (d,)."""

    id: str
    revision: int
    features: NDArray[np.float32]
    terms: Sequence[str]
    ends: Mapping[str, str]

    @classmethod
    def of(cls, arm: EngineArm) -> ArmRow:
        """With what expressions ask of its tags and metadata."""
        terms = arm_terms(*arm.document)
        return cls(arm.id, arm.revision, arm.features, terms.terms, terms.ends)

    def as_dict(self) -> dict[str, Any]:
        return {
            "id": self.id,
            "revision": self.revision,
            "features": self.features,
            "terms": self.terms,
            "ends": self.ends,
        }


class _Recovery(NamedTuple):
    """The recovery of a collection for searches. ``waits_until``: on the clock of the event loop."""

    task: asyncio.Task[None]
    waits_until: float


class _Search(NamedTuple):
    """The common terms of searches which can be asked together."""

    collection: str
    expression: str
    limit: int
    ef: int


class MilvusEngine(ArmEngine):
    """One Milvus, or Milvus Lite. ``uri``: http(s)://, tcp:// or unix:, with a token where needed.

    ``timeout_s``    of a call which makes, loads and writes nothing
    ``rest_s``       before a failed engine is asked again
    ``load_wait_s``  searches wait so long for a loading collection, from its beginning
    """

    def __init__(
        self,
        uri: str,
        *,
        timeout_s: float = TIMEOUT_S,
        rest_s: float = REST_S,
        load_wait_s: float = LOAD_WAIT_S,
    ) -> None:
        self._uri, self._timeout_s, self._rest_s, self.load_wait_s = uri, timeout_s, rest_s, load_wait_s
        self._client: Any = None
        self._errors: tuple[type[Exception], ...] = ()
        self._is_here = False  # it answered, and its version was checked; else nobody but the probe asks it
        self._probe: asyncio.Task[None] | None = None
        self._waiting: dict[_Search, list[tuple[NDArray[np.float32], asyncio.Future[list[str]]]]] = {}
        self._searching: dict[_Search, asyncio.Task[None]] = {}
        self._recoveries: dict[str, _Recovery] = {}
        self.settled_s = SETTLED_S

    async def open(self) -> None:
        """Load the client, and check a reachable engine. Raises StartupError.

        An unusable engine is no reason not to start: rewards and other catalogues do not need it.
        """
        try:
            from grpc import RpcError  # noqa: PLC0415
            from pymilvus import AsyncMilvusClient  # noqa: PLC0415
            from pymilvus.exceptions import MilvusException  # noqa: PLC0415
        except ImportError as error:
            raise StartupError(NOT_INSTALLED.format(package=error.name or "pymilvus")) from None
        logging.getLogger("pymilvus").setLevel(logging.CRITICAL)  # what fails is told to the caller
        self._errors = (MilvusException, RpcError, TimeoutError, OSError)
        try:
            self._client = AsyncMilvusClient(self._uri, dedicated=True, grpc_options=_GRPC_OPTIONS)
        except MilvusException as error:
            raise StartupError(f"SHORTLIST_MILVUS_URI is not an address of Milvus: {error.message}") from None
        try:
            await self._identify()
        except Unavailable as error:
            log.warning("%s; choices that need it wait for it", error.detail)
            self._lost()

    def check(self) -> None:
        """Raise WrongEngine for an engine we cannot use, Unavailable while it does not answer."""
        if not self._is_here:
            raise Unavailable(AWAY) if self.fault is None else WrongEngine(self.fault)

    async def _identify(self) -> None:
        version = await self._called(lambda: self._client.get_server_version(timeout=self._timeout_s))
        try:
            name = check_version(version)
        except WrongEngine as error:
            self.fault = error.detail
            raise
        self.fault = None
        self.settled_s = 0.0 if name == "milvus_lite" else SETTLED_S
        self._is_here = True
        log.info("the engine of the arms is %s", version)

    def _lost(self) -> None:
        """Refuse every call until the engine answers. What comes back may be another engine."""
        self._is_here = False
        if self._probe is None or self._probe.done():
            self._probe = asyncio.create_task(self._await_return())

    async def _await_return(self) -> None:
        while not self._is_here:
            await asyncio.sleep(self._rest_s)
            try:
                await self._identify()
            except Unavailable:
                pass
            except Exception:
                log.exception("asking the engine of the arms for its version failed, and is tried again")

    async def close(self) -> None:
        probe = () if self._probe is None else (self._probe,)
        for task in (
            *probe,
            *self._searching.values(),
            *(recovery.task for recovery in self._recoveries.values()),
        ):
            task.cancel()
        client, self._client = self._client, None
        if client is not None:
            await client.close()

    async def create(self, name: str, dim: int, *, m: int, ef_construction: int) -> None:
        """Make an empty collection, ready to be written and searched.

        By the other client, in a thread: asyncio's waits by a call unknown to Milvus Lite.
        """
        await self._make_call(lambda: asyncio.to_thread(self._create, name, dim, m, ef_construction))

    def _create(self, name: str, dim: int, m: int, ef_construction: int) -> None:
        from pymilvus import DataType, MilvusClient  # noqa: PLC0415

        schema = MilvusClient.create_schema(auto_id=False, enable_dynamic_field=False)
        schema.add_field("id", DataType.VARCHAR, is_primary=True, max_length=128)
        schema.add_field("revision", DataType.INT64)
        schema.add_field("features", DataType.FLOAT_VECTOR, dim=dim)
        array: dict[str, Any] = {"element_type": DataType.VARCHAR}
        schema.add_field("terms", DataType.ARRAY, max_capacity=MOST_TERMS, max_length=TERM_CHARS, **array)
        schema.add_field("ends", DataType.JSON)
        index = MilvusClient.prepare_index_params()
        graph = {"M": m, "efConstruction": ef_construction}
        index.add_index("features", index_type="HNSW", metric_type="IP", params=graph)
        with contextlib.closing(MilvusClient(self._uri, timeout=self._timeout_s)) as client:
            client.create_collection(
                name,
                schema=schema,
                index_params=index,
                consistency_level="Bounded",
                timeout=LONG_TIMEOUT_S,
            )

    async def dim(self, name: str) -> int | None:
        """The dimension of a collection, which is loaded if needed; None: there is none."""
        if name not in await self.collections():
            return None
        described = await self._make_call(
            lambda: self._client.describe_collection(name, timeout=self._timeout_s)
        )
        await self._make_call(lambda: self._client.load_collection(name, timeout=LONG_TIMEOUT_S))
        dims = [field["params"].get("dim") for field in described["fields"] if field["name"] == "features"]
        return int(dims[0]) if dims and dims[0] is not None else 0

    async def collections(self) -> Sequence[str]:
        names: Sequence[str] = await self._make_call(
            lambda: self._client.list_collections(timeout=self._timeout_s)
        )
        return names

    async def drop(self, name: str) -> None:
        """Drop a collection, if it is there."""
        await self._make_call(lambda: self._client.drop_collection(name, timeout=self._timeout_s))

    async def write(self, name: str, arms: Sequence[EngineArm], deleted: Sequence[str]) -> None:
        """Insert or replace arms, and delete others. A repeated call changes nothing."""
        await self.write_rows(name, [ArmRow.of(arm) for arm in arms], deleted)

    async def write_rows(self, name: str, rows: Sequence[ArmRow], deleted: Sequence[str] = ()) -> None:
        """``write``, of arms with terms. Returns when all can be searched."""
        if rows:
            data = [row.as_dict() for row in rows]
            await self._make_call(lambda: self._client.upsert(name, data, timeout=LONG_TIMEOUT_S))
        if deleted:
            ids = list(deleted)
            await self._make_call(lambda: self._client.delete(name, ids=ids, timeout=LONG_TIMEOUT_S))
        # Milvus answers writes before they can be searched: it is asked for one of them.
        for arm_id in [*deleted, *(row.id for row in rows)][-1:]:
            await self._confirm(name, arm_id)

    async def seal(self, name: str) -> None:
        """Have Milvus build the graph over the written arms. Until then Milvus finds arms by a coarse index
        of its own, without regard to ``ef``: .47 of the best arms of 100,000.
        """
        await self._make_call(lambda: self._client.flush(name, timeout=LONG_TIMEOUT_S))

    async def _confirm(self, name: str, arm: str) -> None:
        """Return when the engine answers from all earlier writes."""
        strong = {"consistency_level": "Strong", "timeout": LONG_TIMEOUT_S}
        await self._make_call(
            lambda: self._client.query(name, ids=[arm], output_fields=["revision"], **strong)
        )

    async def search(
        self,
        collection: str,
        query: NDArray[np.float32],
        limit: int,
        *,
        arm_filter: Filter | None = None,
        ef: int,
    ) -> list[str]:
        """Ids of arms of large inner product, best first, about the matches of a filter."""
        expression = "" if arm_filter is None else expression_of(arm_filter)
        return await self.search_where(collection, query, limit, expression=expression, ef=ef)

    async def search_where(
        self, collection: str, query: NDArray[np.float32], limit: int, *, expression: str, ef: int
    ) -> list[str]:
        """``search``, among the arms for which an expression is true. Shapes: query (d,).

        A collection outside of the engine's memory is loaded: searches wait for ``load_wait_s``. While the
        engine is known to be away, or loads for longer, they are refused at once. Raises CollectionGone:
        there is no such collection; Unavailable.
        """
        search = _Search(collection, expression, limit, max(ef, limit))
        if collection in self._recoveries:
            await self._recovered(collection)
        try:
            return await self._batched_search(search, query)
        except (CollectionGone, NotLoaded):
            self._recover(search, query, wait_s=self.load_wait_s)
        except Unavailable:
            if not self._is_here:
                self._recover(search, query, wait_s=0.0)
            raise
        await self._recovered(collection)
        return await self._batched_search(search, query)

    def _recover(self, search: _Search, query: NDArray[np.float32], *, wait_s: float) -> None:
        """Have the collection searched again, in the background, unless under way."""
        name = search.collection
        if name in self._recoveries:
            return
        # Without its filter, which the engine might refuse for ever.
        work = self._search_again(search._replace(expression=""), query)
        task = asyncio.create_task(work)
        task.add_done_callback(partial(self._end_recovery, name))
        self._recoveries[name] = _Recovery(task, asyncio.get_running_loop().time() + wait_s)

    async def _search_again(self, search: _Search, query: NDArray[np.float32]) -> None:
        """Return when a search is answered: a freshly started engine says too early that all is loaded.

        Raises CollectionGone.
        """
        name = search.collection
        while True:
            with contextlib.suppress(Unavailable):
                if name not in await self.collections():
                    break
                await self._make_call(lambda: self._client.load_collection(name, timeout=LONG_TIMEOUT_S))
                await self._search([query], search)
                return
            await asyncio.sleep(self._rest_s)
        raise CollectionGone(GONE)

    def _end_recovery(self, name: str, task: asyncio.Task[None]) -> None:
        del self._recoveries[name]
        if not task.cancelled():
            task.exception()  # those who wait are told; there may be none any more

    async def _recovered(self, name: str) -> None:
        """Return when the collection is searched again. Raises Unavailable when this takes long."""
        task, waits_until = self._recoveries[name]
        if asyncio.get_running_loop().time() < waits_until:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout_at(waits_until):
                    await asyncio.shield(task)
                    return
        self.check()
        raise Unavailable(LOADING)

    async def _batched_search(self, search: _Search, query: NDArray[np.float32]) -> list[str]:
        """The answer to a search. Searches of one kind, while one is on its way, are asked together when it
        is back.
        """
        answer: asyncio.Future[list[str]] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(search, []).append((query, answer))
        # One task for each kind of search: searches during its wait for the engine go with its next call.
        if search not in self._searching:
            self._searching[search] = asyncio.create_task(self._answer(search))
        return await answer

    async def _answer(self, search: _Search) -> None:
        try:
            while waiting := self._waiting.pop(search, None):
                together, later = waiting[:SEARCHED_TOGETHER], waiting[SEARCHED_TOGETHER:]
                if later:
                    self._waiting[search] = later
                await self._answer_some(search, together)
        finally:
            del self._searching[search]

    async def _answer_some(
        self, search: _Search, together: Sequence[tuple[NDArray[np.float32], asyncio.Future[list[str]]]]
    ) -> None:
        try:
            hits_of_queries = await self._search([query for query, _ in together], search)
            answers = list(zip(together, hits_of_queries, strict=True))
        except Exception as error:
            for _, answer in together:
                # Its caller may have been cancelled meanwhile.
                if not answer.done():
                    answer.set_exception(error)
            return
        for (_, answer), hits in answers:
            if not answer.done():
                answer.set_result(hits)

    async def _search(self, queries: Sequence[NDArray[np.float32]], search: _Search) -> list[list[str]]:
        results = await self._make_call(lambda: self._ask(queries, search))
        ids, ends = list(results.ids.str_id.data), accumulate(results.topks, initial=0)
        # An empty collection answers no list at all.
        return [ids[start:end] for start, end in pairwise(ends)] or [[] for _ in queries]

    async def _ask(self, queries: Sequence[NDArray[np.float32]], search: _Search) -> Any:
        """The results of a search. By the stub of the client: its own ``search`` takes .4 ms more of a core,
        for a timer, a task, and an object for each found arm.
        """
        from pymilvus.client.utils import check_status  # noqa: PLC0415
        from pymilvus.grpc_gen import common_pb2, milvus_pb2  # noqa: PLC0415

        vectors = common_pb2.PlaceholderValue(
            tag="$0",
            type=common_pb2.PlaceholderType.FloatVector,
            values=[query.tobytes() for query in queries],
        )
        request = milvus_pb2.SearchRequest()
        request.CopyFrom(_request(search))
        request.nq = len(queries)
        request.placeholder_group = common_pb2.PlaceholderGroup(placeholders=[vectors]).SerializeToString()
        handler = await self._client._get_connection()
        metadata = self._client._generate_call_context().to_grpc_metadata()
        answer = await handler._async_stub.Search(request, timeout=self._timeout_s, metadata=metadata)
        check_status(answer.status)
        return answer.results

    async def _make_call(self, call: Callable[[], Awaitable[T]]) -> T:
        """Make a call. Raises Unavailable: the call failed, or the engine is known to be away."""
        self.check()
        return await self._called(call)

    async def _called(self, call: Callable[[], Awaitable[T]]) -> T:
        if self._client is None:  # closed: while it connects the client may miss that a task was cancelled
            raise asyncio.CancelledError
        try:
            return await call()
        except self._errors as error:
            raise self._failure(error) from error

    def _failure(self, error: Exception) -> Unavailable:
        """The meaning of a failed call. A refused, or too early, one does not make the engine away."""
        code = getattr(error, "code", None)
        if code == _COLLECTION_ABSENT:  # the follower makes what is missing
            return CollectionGone(GONE)
        if code in _NOT_LOADED:
            return NotLoaded(LOADING)
        if isinstance(code, int) and code > _CONNECT_FAILED:
            log.error("the engine of the arms refused a call", exc_info=error)
            return Unavailable("Milvus refused a call")
        log.warning("%s: %s", AWAY, error)
        self._lost()
        return Unavailable(AWAY)


@lru_cache(256)
def _request(search: _Search) -> Any:
    """The request of a search, but for its queries."""
    from pymilvus.grpc_gen import common_pb2, milvus_pb2  # noqa: PLC0415

    parameters = {
        "topk": str(search.limit),
        "metric_type": "IP",
        "params": json.dumps({"ef": search.ef}),
        "round_decimal": "-1",
    }
    return milvus_pb2.SearchRequest(
        collection_name=search.collection,
        dsl=search.expression,
        dsl_type=common_pb2.DslType.BoolExprV1,
        search_params=[{"key": key, "value": value} for key, value in parameters.items()],
        consistency_level=common_pb2.ConsistencyLevel.Bounded,
        guarantee_timestamp=_BOUNDED,
    )


def check_version(text: str) -> str:
    """The name of the engine. Raises WrongEngine for an unknown, or too old, one."""
    parts = re.match(r"(?:(milvus_lite)-|v?)(\d+)\.(\d+)(?:\.(\d+))?", text)
    if parts is None:
        raise WrongEngine("SHORTLIST_MILVUS_URI names an engine of an unknown version")
    name = parts[1] or "milvus"
    version, least = tuple(int(part or 0) for part in parts.groups()[1:]), LEAST_VERSIONS[name]
    if version < least:
        here, need = (".".join(map(str, numbers)) for numbers in (version, least))
        raise WrongEngine(f"the engine at SHORTLIST_MILVUS_URI is {name} {here}: {need} or newer is needed")
    return name
