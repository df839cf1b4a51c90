"""The kinds of an index that the planner tries: those of the library, and those of plug-ins.

An index of the library is added to ``OURS`` of ``shortlist.index.planner``.
"""

from __future__ import annotations

from app.platform import plugins
from app.platform.errors import StartupError
from shortlist.index import planner
from shortlist.index.index import OWN_KINDS, IndexKind, Saving
from shortlist.index.planner import OURS, Candidate, IndexOptions


def _candidates() -> list[Candidate]:
    """Raises StartupError: a plug-in breaks the contract."""
    candidates = [*OURS]
    for name, candidate in plugins.load("indexes", Candidate, OWN_KINDS).items():
        if candidate.kind != name:
            raise StartupError(f"the index {name} of a plug-in must have this kind, not {candidate.kind}")
        candidates.append(candidate)
    return candidates


_ALL = _candidates()
CANDIDATES = [candidate for candidate in _ALL if candidate.missing is None]
"""All structures that are tried where no exact search is quick enough; the fastest that may serve does."""
MISSING = {candidate.kind: candidate.missing for candidate in _ALL if candidate.missing is not None}
"""What is to be installed before a structure can be built, by kind."""
CHOICES = ("auto", "exact", *(candidate.kind for candidate in CANDIDATES))
"""What ``IndexOptions.kind`` may be."""


def is_forced(options: IndexOptions) -> bool:
    """True if the owner asks for one structure, however large the catalogue is."""
    return any(options.kind == candidate.kind for candidate in CANDIDATES)


def saving_of(kind: IndexKind) -> Saving | None:
    """The ``Saving`` of a kind of structure, for sharing between processes; None: the kind is not shared."""
    return planner.saving_of(kind, CANDIDATES)
