"""The registry of policies: the only list of their names. A new policy is one file and one row here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Literal

from app.services.choosing.elimination import LinearElim, SubElim
from app.services.choosing.epsilon_greedy import EpsilonGreedy
from app.services.choosing.igw import InverseGapWeighting
from app.services.choosing.linucb import LinUcb
from app.services.choosing.policy import Policy
from app.services.choosing.softmax import SoftmaxPolicy
from app.services.choosing.thompson import LinearTs, SubTs

_ROWS: tuple[Policy, ...] = (
    SubTs(),
    LinearTs(),
    SubElim(),
    LinearElim(),
    SoftmaxPolicy(),
    InverseGapWeighting(),
    EpsilonGreedy(),
    LinUcb(),
)
POLICIES: Mapping[str, Policy] = {row.name: row for row in _ROWS}

if TYPE_CHECKING:
    PolicyName = str
else:
    PolicyName = Literal[tuple(POLICIES)]
