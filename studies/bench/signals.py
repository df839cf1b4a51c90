"""`shortlist bench signals`: several rewards in one learner, and places that are not all looked at.

Four parts, each with its notation in its own module: what signals cost (``signals_cost``), the front between
two signals beside learners that know one mix each and what an evaluation says of it (``signals_front``), and
what it is worth to know the examination of places (``signals_places``).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from threadpoolctl import threadpool_limits

from app.platform.command_line import table
from studies.bench import signals_cost, signals_front, signals_places
from studies.measurement import record


def run(quick: bool, data: Path | None = None) -> dict[str, Any]:
    """Measure all parts, of films only with ``data``; print and return their rows.

    ``quick``: fewer draws. Raises ShortlistError: no MovieLens data in ``data``.
    """
    with threadpool_limits(1):
        parts = {
            "front": signals_front.rows(quick, data),
            "coverage": signals_front.coverage(signals_front.QUICK_LOGS if quick else signals_front.LOGS),
            "places": signals_places.rows(quick),
            "cost": signals_cost.rows(quick),
        }
    for name, rows in parts.items():
        print(f"\n{name}")
        print(table(rows))
    rows = [{"part": name, **row} for name, part in parts.items() for row in part]
    return record("signals", rows, seed=signals_front.SEED)
