"""`shortlist bench context`: what a context costs and what it brings.

Four tables, each explained where it is made: the time of a decision (``context_decisions``), regret
(``context_regret``), what a reward costs to learn (``context_learning``), and with `--data` films for new
users of MovieLens, beside contextual bandits of others (``context_films``, ``context_peers``).
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from app.platform.command_line import table
from app.platform.errors import ShortlistError
from studies.bench import context_decisions, context_films, context_learning, context_peers, context_regret
from studies.measurement import record

SEED = context_decisions.SEED


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """Of each part."""

    films: context_films.Sizes = context_films.WHOLE
    regret: context_regret.Sizes = context_regret.WHOLE
    learning: context_learning.Sizes = context_learning.WHOLE
    decisions: context_decisions.Sizes = context_decisions.WHOLE


WHOLE = Sizes()
QUICK = Sizes(
    films=context_films.QUICK,
    regret=context_regret.QUICK,
    learning=context_learning.QUICK,
    decisions=context_decisions.QUICK,
)


def run(quick: bool, data: Path | None = None, sizes: Sizes | None = None) -> dict[str, Any]:
    """Measure all parts, films only with ``data``; print and return the rows of all.

    Raises ShortlistError: there is no MovieLens data in ``data``, or of too few users.
    """
    sizes = sizes or (QUICK if quick else WHOLE)
    rows: list[dict[str, Any]] = []
    if data is not None:  # first, so that a wrong folder shows at once
        try:
            rows += _shown(context_films.rows(sizes.films, data, list(context_peers.installed())))
        except (OSError, ValueError) as error:
            raise ShortlistError(f"--data: {error}") from None
    else:
        print("films for new users are left out: --data names no MovieLens directory")
    rows += _shown(context_regret.rows(sizes.regret))
    rows += _shown(context_learning.rows(sizes.learning))
    rows += _shown(context_decisions.rows(sizes.decisions))
    return record("context", rows, seed=SEED)


def _shown(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    print(table(rows))
    return rows
