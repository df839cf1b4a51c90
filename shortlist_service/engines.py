"""Arms in an engine of one's own: a subclass of ``EngineKind``, and one of ``ArmEngine``.

    import os

    from shortlist_service.engines import ArmEngine, EngineKind

    class Qdrant(ArmEngine):
        async def search(self, collection, query, limit, *, arm_filter=None, ef):
            points = await self.client.query_points(collection, query.tolist(), limit=limit)
            return [point.payload["id"] for point in points]
        ...

    class QdrantKind(EngineKind):
        title = "Qdrant"
        setting = "QDRANT_URL"

        def engine(self, settings):
            url = os.environ.get(self.setting)
            return None if url is None else Qdrant(url)

The entry point names this class, and is the kind of its catalogues: ``"index": {"kind": "qdrant"}``. The
store has all arms; the engine has copies of them, which the service keeps up to date, and proposes arms. The
service reads those from the store, checks filters and scores them, so an engine may be late, approximate or
away. The docstring of ``ArmEngine`` says what each method may do, and when it is called. A filter is a tree
of ``Expression``; ``fields_of`` has the values of an arm's fields as filters see them. ``EmbeddedServer``
runs an engine as a supervised child of the service.
"""

from app.engines.engine_contract import (
    MOST_FOUND,
    ArmEngine,
    CollectionGone,
    EngineArm,
    EngineKind,
    NotLoaded,
    WrongEngine,
)
from app.filters.attributes import Document
from app.filters.fields import Value, ValueKind, fields_of, kind_of
from app.filters.filter import AllOf, AnyOf, Exists, Expression, Filter, Not, OneOf, Ordered, text_of
from app.platform.settings import Settings
from app.storage.embedded.server import EmbeddedServer

__all__ = [
    "MOST_FOUND",
    "AllOf",
    "AnyOf",
    "ArmEngine",
    "CollectionGone",
    "Document",
    "EmbeddedServer",
    "EngineArm",
    "EngineKind",
    "Exists",
    "Expression",
    "Filter",
    "Not",
    "NotLoaded",
    "OneOf",
    "Ordered",
    "Settings",
    "Value",
    "ValueKind",
    "WrongEngine",
    "fields_of",
    "kind_of",
    "text_of",
]
