"""Milvus as an engine: the kind of catalogue "milvus", and the setting SHORTLIST_MILVUS_URI."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pydantic import SecretStr

from shortlist_milvus.embedded_engine import EmbeddedEngine, is_embedded
from shortlist_milvus.engine import MilvusEngine
from shortlist_service.engines import EngineKind, Settings

LEAST_DIM = 2  # that Milvus takes


class MilvusSource(EngineKind):
    """A Milvus at an address, or Milvus Lite as a child of the service, where the setting names a file."""

    title = "Milvus"
    setting = "SHORTLIST_MILVUS_URI"
    least_dim = LEAST_DIM

    def engine(self, settings: Settings) -> MilvusEngine | None:
        uri = settings.milvus_uri
        return None if uri is None else MilvusEngine(uri.get_secret_value())

    @contextmanager
    def serving(self, settings: Settings) -> Iterator[Settings]:
        uri = settings.milvus_uri
        if uri is None or not is_embedded(uri.get_secret_value()):
            yield settings
            return
        with EmbeddedEngine(Path(uri.get_secret_value())) as engine:
            yield settings.model_copy(update={"milvus_uri": SecretStr(engine.uri)})
