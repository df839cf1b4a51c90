"""The policy, the constraint and the index keep the contracts of Shortlist."""

from __future__ import annotations

import pytest
from shortlist_example.indexes import Flat8
from shortlist_example.policies import TopTwo

from shortlist_service.indexes import Index, TableSnapshot
from shortlist_service.testing import Build, ConstraintCase, ConstraintContract, IndexContract, PolicyContract
from shortlist_service.testing.shop import maker


class TestPolicy(PolicyContract):
    @pytest.fixture
    def policy(self) -> TopTwo:
        return TopTwo()


class TestConstraint(ConstraintContract):
    @pytest.fixture
    def case(self) -> ConstraintCase:
        return ConstraintCase(
            lambda lists: all(maker(arm) == "m1" for arms in lists for arm in arms),
            settings={"constraints": {"only": {"makers": ["m1"]}}},
        )


class TestIndex(IndexContract):
    @pytest.fixture
    def build(self) -> Build:
        def build(table: TableSnapshot) -> Index:
            return Flat8(table, table.live_rows)

        return build
