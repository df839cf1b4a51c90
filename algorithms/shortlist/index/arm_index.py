"""An index over arms that stay as they are: built by measuring, searched, written and read.

Notation
    K, d        number of arms, dimension
"""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from shortlist import checks
from shortlist.errors import InvalidParameter
from shortlist.index import inverted_file
from shortlist.index.index import Build, IndexKind, PublicationReader, PublicationWriter, Saving
from shortlist.index.inverted_file import InvertedFile
from shortlist.index.planner import IndexOptions, Plan, plan, probe_generator, saving_of
from shortlist.index.searched_table import SearchedTable
from shortlist.index.shared_format import digest_of, read_packed, write_packed
from shortlist.index.table import table_of
from shortlist.types import NO_ROWS, Matrix, Rows, TopK, Vector

KINDS = ("auto", "exact", "hnsw", "inverted_file")
_DEFAULTS = IndexOptions()
_NAME, _FORMAT = "index", 2


class SavedIndex(msgspec.Struct, frozen=True):
    """The saved structure over the arms of this ``digest``: see ``ArmIndex``.

    ``structure``: the result of ``Saving.save`` of its ``kind``; None: none.
    """

    digest: str
    kind: IndexKind
    plan: Plan | None
    structure: Any


@dataclass(frozen=True, slots=True, eq=False)
class ArmIndex(SearchedTable):
    """See ``build``. ``plan``: what was measured; None: of an inverted file nothing was."""

    plan: Plan | None

    def search(self, query: Vector, k: int, exclude: Rows = NO_ROWS) -> TopK:
        """The ``k`` arms of largest score outside ``exclude``; fewer only if there are no more.

        Shapes: query (d,), exclude (e,) distinct rows -> (m,). Raises: InvalidShape, NonFinite,
        InvalidParameter (k < 1).
        """
        checks.shape("query", query, (self.table.dim,))
        checks.in_range("k", k, least=1, whole=True)
        return SearchedTable.search(self, query, k, exclude)


def build(
    features: Matrix, options: IndexOptions = _DEFAULTS, *, seed: int = 0, threads: int = 1
) -> ArmIndex:
    """An index over ``features`` (K, d), which are copied; rows are those of ``features``.

    ``options.kind``: ``"hnsw"`` builds a graph, ``"inverted_file"`` lists around centroids, ``"exact"``
    nothing. ``"auto"`` measures, and builds a graph where it is faster than any exact search and finds
    ``options.target_recall`` of the best arms; at fewer than 500,000 numbers nothing is built. ``seed`` fixes
    what is drawn; with one of ``threads`` the structure follows from it.

    Cost: of a graph some 60 microseconds for each arm, of an inverted file 1 or 2, and the probes: a scan for
    each of 1,000 to 4,000. Memory: 12 d + 24 bytes an arm, and the structure.
    Raises: InvalidShape, NonFinite, InvalidParameter (a kind that is none).
    """
    checks.shape("features", features, (None, None))
    checks.finite("features", features)
    if options.kind not in KINDS:
        raise InvalidParameter(f"index must be one of {', '.join(KINDS)}", argument="index")
    table = table_of(features)
    if options.kind == InvertedFile.kind and table.live:
        return ArmIndex(table, InvertedFile.build(table, options.target_recall, seed), None)
    how = Build(seed=seed, threads=threads, check=lambda: None)
    chosen, structure = plan(table, options, how, recent=(), rng=probe_generator(seed))
    return ArmIndex(table, structure, chosen)


def save(index: ArmIndex, path: str | os.PathLike[str]) -> None:
    """Write what was built to a folder, in the place of what is there; not the arms. Raises OSError."""
    folder = Path(path)
    part = folder.with_name(f"{folder.name}.part")
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir(mode=0o700)
    structure, table = index.structure, index.table
    saved, saving = None, _saving_of(index.kind)
    if saving is not None:
        positions = np.arange(table.rows)
        to = PublicationWriter(folder=part, table=table, positions=positions, last=None, cache=None)
        saved = saving.save(structure, to)
    contents = SavedIndex(digest_of(table.features), index.kind, index.plan, saved)
    write_packed(part, _NAME, contents, number=_FORMAT, check=lambda: None)
    shutil.rmtree(folder, ignore_errors=True)
    part.replace(folder)


def load(path: str | os.PathLike[str], features: Matrix) -> ArmIndex:
    """The index that was saved over ``features`` (K, d). Cost: a copy of them, and of the files.

    Raises: OSError (there is none, or no room); ValueError, TypeError, RuntimeError (it was changed, or is of
    other arms).
    """
    checks.shape("features", features, (None, None))
    folder = Path(path)
    contents, data = read_packed(folder, _NAME, SavedIndex, number=_FORMAT)
    table = table_of(features)
    if contents.digest != digest_of(table.features):
        raise ValueError("the index is of other arms")
    saving, structure = _saving_of(contents.kind), None
    try:
        if saving is not None:
            structure = saving.load(
                PublicationReader(
                    saved=contents.structure, data=data, folder=folder, table=table, covered=table.rows
                )
            )
    except msgspec.MsgspecError as error:
        raise ValueError("the index was changed") from error
    return ArmIndex(table, structure, contents.plan)


def _saving_of(kind: IndexKind) -> Saving | None:
    return inverted_file.SAVING if kind == InvertedFile.kind else saving_of(kind)
