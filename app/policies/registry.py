"""The registry of policies: the only list of their names. A new policy is one file and one row here.

Policies of plug-ins are there, too (``platform.plugins``).
"""

from __future__ import annotations

from collections.abc import ItemsView, Iterator, KeysView, ValuesView
from typing import Any, Self

from app.platform import plugins
from app.platform.errors import StartupError
from app.policies.base import Chooser, Policy
from app.policies.elimination import LinearElim, SubElim
from app.policies.epsilon_greedy import EpsilonGreedy
from app.policies.igw import InverseGapWeighting
from app.policies.linucb import LinUcb
from app.policies.missing import MissingPolicy
from app.policies.softmax import SoftmaxPolicy
from app.policies.thompson import LinearTs, SubTs

_ROWS: tuple[Chooser, ...] = (
    SubTs(),
    LinearTs(),
    SubElim(),
    LinearElim(),
    SoftmaxPolicy(),
    InverseGapWeighting(),
    EpsilonGreedy(),
    LinUcb(),
)


def _registry() -> dict[str, Chooser]:
    """Our policies, and those of plug-ins. Raises StartupError: one of them breaks the contract."""
    policies: dict[str, Chooser] = {row.name: row for row in _ROWS}
    extensions = plugins.load("policies", Policy, policies)  # type: ignore[type-abstract]
    for name, policy in extensions.items():
        if getattr(policy, "name", None) != name:
            raise StartupError(f"the policy {name} of a plug-in must have name = {name!r}")
        if not getattr(policy, "summary", ""):
            raise StartupError(f"the policy {name} of a plug-in must have a summary")
        policies[name] = policy
    return policies


class Policies(dict[str, Chooser]):
    """The policies by name. A stored bandit may have a policy that is not installed here.

    Plug-ins are loaded at the first look: their imports may import this module. A dictionary, since each
    choice looks up its policy.
    """

    is_loaded = False

    def _load(self) -> Self:
        if not self.is_loaded:
            self.update(_registry())
            self.is_loaded = True
        return self

    def __missing__(self, name: str) -> Chooser:
        return self._load().get(name) or MissingPolicy(name)

    def __contains__(self, name: object) -> bool:
        return dict.__contains__(self._load(), name)

    def get(self, name: str, default: Any = None) -> Any:
        return dict.get(self._load(), name, default)

    def __iter__(self) -> Iterator[str]:
        return dict.__iter__(self._load())

    def __len__(self) -> int:
        return dict.__len__(self._load())

    # Those of a dictionary would not load.
    def keys(self) -> KeysView[str]:  # type: ignore[override]
        return KeysView(self)

    def items(self) -> ItemsView[str, Chooser]:  # type: ignore[override]
        return ItemsView(self)

    def values(self) -> ValuesView[Chooser]:  # type: ignore[override]
        return ValuesView(self)


POLICIES = Policies()
