"""Contracts as classes: a package that adds a policy, constraint, index or engine runs them on itself.

    from shortlist_service.testing import PolicyContract
    from my_package import FeelGood

    class TestFeelGood(PolicyContract):
        @pytest.fixture
        def policy(self):
            return FeelGood()

Each class names in its docstring the one fixture that it is given; pytest finds its tests. The service comes
from ``shortlist_service.testing.fixtures``, which ``conftest.py`` names:

    pytest_plugins = ["shortlist_service.testing.fixtures"]
"""

from shortlist_service.testing.arm_engine_contract import ArmEngineContract
from shortlist_service.testing.constraint_contract import ConstraintCase, ConstraintContract, Lists
from shortlist_service.testing.headless_service import HeadlessService
from shortlist_service.testing.index_contract import Build, IndexContract
from shortlist_service.testing.policy_contract import PolicyContract

__all__ = [
    "ArmEngineContract",
    "Build",
    "ConstraintCase",
    "ConstraintContract",
    "HeadlessService",
    "IndexContract",
    "Lists",
    "PolicyContract",
]
