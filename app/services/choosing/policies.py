"""THE table of policies. A new policy is one file and one row; nothing else asks for a policy by its name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Literal

from app.services.bandits.settings import BanditRecord
from app.services.choosing import elimination, igw, softmax, thompson
from app.services.choosing.policy import Policy

ANY_PRIOR = frozenset({"prior", "half_life_s"})
MAX_ELIMINATION_DIM = 256


def _half_of_delta(record: BanditRecord) -> float:
    """Yang et al. 2022, Algorithm 3, line 3."""
    return record.delta / 2


_ROWS = (
    Policy(
        "sub_ts",
        thompson.sub_ts,
        options=ANY_PRIOR | {"context", "explore", "solver"},
        diverse=True,
        proposed=True,
        targets=thompson.SUB_TS_TARGETS,
    ),
    Policy(
        "linear_ts",
        thompson.linear_ts,
        options=ANY_PRIOR | {"context", "explore"},
        diverse=True,
        targets=thompson.LINEAR_TS_TARGETS,
    ),
    # Elimination is for good, so it has no prior that changes and does not discount.
    Policy(
        "sub_elim",
        elimination.sub_elim,
        theory_delta=_half_of_delta,
        needs_exploration=True,
        fixed=True,
        most_dim=MAX_ELIMINATION_DIM,
        most_signals=1,
        sets=elimination.sub_elim_sets,
    ),
    Policy(
        "linear_elim",
        elimination.linear_elim,
        theory_delta=_half_of_delta,
        needs_exploration=True,
        fixed=True,
        most_dim=MAX_ELIMINATION_DIM,
        most_signals=1,
        sets=elimination.linear_elim_sets,
    ),
    Policy(
        "softmax",
        softmax.softmax,
        options=ANY_PRIOR | {"context", "temperature"},
        defaults={"temperature": 1.0},
        propensities=True,
        targets=softmax.TARGETS,
    ),
    Policy(
        "igw",
        igw.igw,
        options=ANY_PRIOR | {"context", "gamma"},
        defaults={"gamma": 100.0},
        propensities=True,
        targets=igw.TARGETS,
    ),
)
POLICIES: Mapping[str, Policy] = {row.name: row for row in _ROWS}

if TYPE_CHECKING:
    PolicyName = str
else:
    PolicyName = Literal[tuple(POLICIES)]
