"""/v1/policies: which policies there are, with their options and what they need."""

from __future__ import annotations

from functools import cache
from typing import Any

from fastapi import Response
from pydantic import BaseModel, create_model

from app.api.strict_json import StrictModel, json_router, reply
from app.bandits.completion import PolicyNeeds
from app.bandits.settings import BanditSettings
from app.platform.documents import Answer, fields_of
from app.policies.base import PolicySettings
from app.policies.registry import POLICIES

router = json_router(prefix="/v1/policies", tags=["bandits"])


class PolicyView(Answer, frozen=True):
    """``options``: JSON schema of the bandit's settings with an effect on the policy.

    ``propensities``: whether each arm of a choice comes with its exact probability.
    """

    name: str
    summary: str
    options: dict[str, Any]
    needs: PolicyNeeds
    propensities: bool


class PoliciesView(BaseModel):
    items: list[PolicyView]


@router.get("", response_model=PoliciesView)
async def list_all() -> Response:
    """All policies that a bandit can have."""
    return reply({"items": _views()})


@cache
def _views() -> list[PolicyView]:
    """They do not change while the service runs, and each schema takes pydantic a while to make."""
    return [_view(policy) for policy in POLICIES.values()]


def _view(policy: PolicySettings) -> PolicyView:
    return PolicyView(policy.name, policy.summary, _schema(policy), policy.needs, policy.has_propensities)


def _schema(policy: PolicySettings) -> dict[str, Any]:
    """JSON schema of an object with the options, each with its default."""
    names = policy.all_options | policy.reads
    fields = {
        name: (hint, policy.defaults.get(name, default))
        for name, (hint, default) in fields_of(BanditSettings).items()
        if name in names
    }
    if policy.own_options is not None:
        fields["options"] = (policy.own_options, None)
    model = create_model("Options", __base__=StrictModel, **fields)  # type: ignore[call-overload]
    schema: dict[str, Any] = model.model_json_schema()
    return schema
