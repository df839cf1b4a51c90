"""The arms of a catalogue at one moment, as a learner sees them.

Most learners see them as they are: ``Snapshot`` is such a view. A learner of shifted rewards sees transformed
features of one dimension more (``bandits.shifted``).

Notation
    d'          dimension of what the learner estimates, and of the features and queries of its view
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from app.indexes.snapshot import Snapshot
from app.indexes.structure import Kind
from app.indexes.table import ArmView
from shortlist.types import NO_ROWS, Matrix, Rows, TopK, Vector


class LearnerView(Protocol):
    """What policies need of the arms. It can be used from any thread, and never changes.

    ``plain`` is the catalogue's own snapshot, in its own dimension d.
    ``view`` tells which rows live or died, and in which table. Its features are the catalogue's as well.
    ``largest_norm`` bounds the norms of the features that the learner sees.
    ``expected_us`` is the measured typical time of a search, in microseconds.
    """

    @property
    def plain(self) -> Snapshot: ...
    @property
    def view(self) -> ArmView: ...
    @property
    def size(self) -> int: ...
    @property
    def kind(self) -> Kind: ...
    @property
    def expected_us(self) -> float: ...
    @property
    def largest_norm(self) -> float: ...

    def search(self, query: Vector, k: int, exclude: Rows = NO_ROWS) -> TopK:
        """Return the ``k`` arms of largest score outside ``exclude``.

        Shapes: query (d',), exclude (e,) distinct rows -> rows, scores (m,); m = min(k, eligible arms), also
        when the answer is not exact. Raises: InvalidShape, NonFinite, InvalidParameter (k < 1).
        """
        ...

    def search_exact(self, query: Vector, k: int, exclude: Rows = NO_ROWS) -> TopK:
        """As ``search``, and every eligible arm is compared."""
        ...

    def features_of(self, rows: Rows) -> Matrix:
        """A copy of the features. Shapes: rows (m,) -> (m, d') float64."""
        ...

    def rows_of(self, ids: Iterable[str]) -> Rows:
        """Rows of the arms that are in this view; unknown ids are left out."""
        ...

    def id_of(self, row: int) -> str: ...
    def revision_of(self, row: int) -> int: ...

    def eligible(self, exclude: Rows = NO_ROWS) -> Rows:
        """All rows of this view but those excluded, by revision. Shapes: exclude (e,) -> (m,)."""
        ...
