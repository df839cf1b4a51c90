"""The registry of policies: the only list of their names. A new policy is one file and one row here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Literal

from app.policies.base import Policy
from app.policies.elimination import LinearElim, SubElim
from app.policies.epsilon_greedy import EpsilonGreedy
from app.policies.igw import InverseGapWeighting
from app.policies.linucb import LinUcb
from app.policies.softmax import SoftmaxPolicy
from app.policies.thompson import LinearTs, SubTs

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
