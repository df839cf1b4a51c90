"""An index from outside: a subclass of ``Index``, and a ``Candidate`` that builds and measures one.

    from shortlist_service.indexes import Candidate, Index, Task, measured

    class Flat(Index):
        kind = "flat"
        ...

    def attempt(task: Task):
        started = time.perf_counter()
        index = Flat(task.table)
        return measured(task, index, time.perf_counter() - started)

    CANDIDATE = Candidate("flat", attempt)

The entry point names the candidate, and is called like its kind. The planner tries it for catalogues with
``"index": {"kind": "auto"}`` that are too large to be scanned, and for those that ask for it. The docstring
of ``Index`` says who calls which method, from which thread. An index that extends ``ProposingIndex`` is used
by filters too; one that extends ``RemeasuredIndex`` is measured again after arms died.
"""

from shortlist.index.index import (
    Build,
    Index,
    ProposingIndex,
    PublicationReader,
    PublicationWriter,
    RemeasuredIndex,
    Saving,
)
from shortlist.index.planner import Candidate, IndexOptions, Plan, Task, measured
from shortlist.index.probes import ExactLists, Probes, Quality
from shortlist.index.quality import Degradation
from shortlist.index.table import TableSnapshot
from shortlist.types import NO_ROWS, Rows, TopK, Vector

__all__ = [
    "NO_ROWS",
    "Build",
    "Candidate",
    "Degradation",
    "ExactLists",
    "Index",
    "IndexOptions",
    "Plan",
    "Probes",
    "ProposingIndex",
    "PublicationReader",
    "PublicationWriter",
    "Quality",
    "RemeasuredIndex",
    "Rows",
    "Saving",
    "TableSnapshot",
    "Task",
    "TopK",
    "Vector",
    "measured",
]
