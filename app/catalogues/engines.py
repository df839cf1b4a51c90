"""The engines that have arms of catalogues: whether they are set, their names, whether they answer."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping

import numpy as np

from app.catalogues.catalogue import Catalogue
from app.catalogues.catalogue_kinds import ENGINE_KINDS
from app.engines.engine_index import EngineIndex
from app.engines.proposals import LEAST_ASKED
from app.platform.errors import StartupError

MOST_NAMED = 10


def in_engines(catalogues: Iterable[Catalogue]) -> Mapping[str, EngineIndex]:
    """The index of each catalogue with arms in an engine of a loaded plug-in, by the catalogue's name."""
    return {
        catalogue.name: catalogue.index
        for catalogue in catalogues
        if catalogue.index.resident is None and catalogue.missing_plugin is None
    }


def check_engines(catalogues: Iterable[Catalogue]) -> None:
    """Raise StartupError if a catalogue is kept where this service cannot read."""
    for kind, source in ENGINE_KINDS.items():
        away = sorted(
            name
            for name, index in in_engines(catalogues).items()
            if index.engine is None and index.engine_name.kind == kind
        )
        if away:
            names, where = ", ".join(away[:MOST_NAMED]), f"catalogues are kept in {source.title}"
            raise StartupError(f"{where}, but {source.setting} is not set: {names}")


def engine_titles(catalogues: Iterable[Catalogue]) -> str:
    """The engines that have arms of catalogues, for a sentence."""
    return " and ".join(sorted({index.title for index in in_engines(catalogues).values()}))


async def reach_engines(catalogues: Iterable[Catalogue]) -> None:
    """Return if arms are found in all catalogues with an engine. Raises Unavailable."""
    indexes = in_engines(catalogues).values()
    await asyncio.gather(*(index.proposed(np.ones(index.dim), LEAST_ASKED) for index in indexes))
