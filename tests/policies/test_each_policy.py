"""The policies of the service keep the contract of policies."""

from __future__ import annotations

from typing import Any

import pytest

from app.policies.base import Policy
from app.policies.registry import POLICIES
from shortlist_service.testing import PolicyContract

# Two explore as much as ever by their defaults.
SETTLING: dict[str, dict[str, Any]] = {"igw": {"gamma": "auto"}, "softmax": {"temperature": "auto"}}


class TestPolicies(PolicyContract):
    @pytest.fixture(params=POLICIES)
    def policy(self, request: pytest.FixtureRequest) -> Policy:
        return POLICIES[request.param]

    @pytest.fixture
    def settling(self, policy: Policy) -> dict[str, Any]:
        return SETTLING.get(policy.name, {})
