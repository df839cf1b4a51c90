"""The services that endpoints use. An endpoint asks for one by a parameter of a type ``...Dep``.

``create_app`` builds ``Services`` and gives it to the application. At request time ``JsonRoute`` fills such a
parameter by itself; FastAPI's own resolution of dependencies takes no part.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, Protocol

from fastapi import Depends, Request

from app.observability.metrics import Metrics
from app.services.bandits.bandits import Bandits
from app.services.campaigns.noisy_centers import CenterCampaigns
from app.services.campaigns.slate_warm_start import SlateWarmStart
from app.services.campaigns.slates import SlateCampaigns
from app.services.catalogues.catalogues import Catalogues
from app.services.catalogues.filtered_views import FilteredViews
from app.services.choosing.choosing import Choosing
from app.services.decision_log.decision_log import DecisionLog
from app.services.health.health import Health
from app.services.learning.decisions import Decisions
from app.services.learning.forgetting import Forgetting
from app.services.learning.learner_copies import LearnerCopies
from app.services.learning.learners import Learners
from app.services.learning.rewards import Rewards
from app.services.measuring.evaluations import Evaluations
from app.services.measuring.explain import Explanations
from app.services.measuring.export import Exports
from app.services.measuring.report import Reports
from app.services.queries.centers import CatalogueCenters
from app.services.queries.mips import Mips
from app.services.queries.sampling import Sampling


@dataclass(frozen=True, slots=True)
class Services:
    """Everything that endpoints use; one object for the life of an application."""

    bandits: Bandits
    catalogues: Catalogues
    center_campaigns: CenterCampaigns
    centers: CatalogueCenters
    choosing: Choosing
    decision_log: DecisionLog
    decisions: Decisions
    explanations: Explanations
    exports: Exports
    evaluations: Evaluations
    filtered: FilteredViews
    forgetting: Forgetting
    health: Health
    learner_copies: LearnerCopies
    learners: Learners
    metrics: Metrics
    mips: Mips
    reports: Reports
    rewards: Rewards
    sampling: Sampling
    slate_warm_start: SlateWarmStart
    slates: SlateCampaigns


class ServingApp(Protocol):
    """What the application must have for the endpoints."""

    services: Services


# The name of the service that a dependency stands for: ``JsonRoute`` reads it without a call.
NAMES: dict[Callable[..., Any], str] = {}


def _depends(name: str) -> Any:
    def service(request: Request) -> object:
        app: ServingApp = request.scope["app"]
        return getattr(app.services, name)

    NAMES[service] = name
    return Depends(service)


BanditsDep = Annotated[Bandits, _depends("bandits")]
FilteredDep = Annotated[FilteredViews, _depends("filtered")]
CataloguesDep = Annotated[Catalogues, _depends("catalogues")]
CenterCampaignsDep = Annotated[CenterCampaigns, _depends("center_campaigns")]
CentersDep = Annotated[CatalogueCenters, _depends("centers")]
ChoosingDep = Annotated[Choosing, _depends("choosing")]
DecisionLogDep = Annotated[DecisionLog, _depends("decision_log")]
DecisionsDep = Annotated[Decisions, _depends("decisions")]
ExplanationsDep = Annotated[Explanations, _depends("explanations")]
ExportsDep = Annotated[Exports, _depends("exports")]
EvaluationsDep = Annotated[Evaluations, _depends("evaluations")]
ForgettingDep = Annotated[Forgetting, _depends("forgetting")]
HealthDep = Annotated[Health, _depends("health")]
LearnerCopiesDep = Annotated[LearnerCopies, _depends("learner_copies")]
LearnersDep = Annotated[Learners, _depends("learners")]
MetricsDep = Annotated[Metrics, _depends("metrics")]
MipsDep = Annotated[Mips, _depends("mips")]
ReportsDep = Annotated[Reports, _depends("reports")]
RewardsDep = Annotated[Rewards, _depends("rewards")]
SamplingDep = Annotated[Sampling, _depends("sampling")]
SlatesDep = Annotated[SlateCampaigns, _depends("slates")]
SlateWarmStartDep = Annotated[SlateWarmStart, _depends("slate_warm_start")]
