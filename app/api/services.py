"""The services that endpoints use. An endpoint asks for one by a parameter of a type ``...Dep``.

``create_app`` builds ``Services`` and gives it to the application. At request time ``JsonRoute`` fills such a
parameter with one call; FastAPI's own resolution of dependencies takes no part.
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


def _depends(pick: Callable[[Services], object]) -> Any:
    def service(request: Request) -> object:
        app: ServingApp = request.scope["app"]
        return pick(app.services)

    return Depends(service)


BanditsDep = Annotated[Bandits, _depends(lambda services: services.bandits)]
FilteredDep = Annotated[FilteredViews, _depends(lambda services: services.filtered)]
CataloguesDep = Annotated[Catalogues, _depends(lambda services: services.catalogues)]
CenterCampaignsDep = Annotated[CenterCampaigns, _depends(lambda services: services.center_campaigns)]
CentersDep = Annotated[CatalogueCenters, _depends(lambda services: services.centers)]
ChoosingDep = Annotated[Choosing, _depends(lambda services: services.choosing)]
DecisionLogDep = Annotated[DecisionLog, _depends(lambda services: services.decision_log)]
DecisionsDep = Annotated[Decisions, _depends(lambda services: services.decisions)]
ExplanationsDep = Annotated[Explanations, _depends(lambda services: services.explanations)]
ExportsDep = Annotated[Exports, _depends(lambda services: services.exports)]
EvaluationsDep = Annotated[Evaluations, _depends(lambda services: services.evaluations)]
ForgettingDep = Annotated[Forgetting, _depends(lambda services: services.forgetting)]
HealthDep = Annotated[Health, _depends(lambda services: services.health)]
LearnerCopiesDep = Annotated[LearnerCopies, _depends(lambda services: services.learner_copies)]
LearnersDep = Annotated[Learners, _depends(lambda services: services.learners)]
MetricsDep = Annotated[Metrics, _depends(lambda services: services.metrics)]
MipsDep = Annotated[Mips, _depends(lambda services: services.mips)]
ReportsDep = Annotated[Reports, _depends(lambda services: services.reports)]
RewardsDep = Annotated[Rewards, _depends(lambda services: services.rewards)]
SamplingDep = Annotated[Sampling, _depends(lambda services: services.sampling)]
SlatesDep = Annotated[SlateCampaigns, _depends(lambda services: services.slates)]
SlateWarmStartDep = Annotated[SlateWarmStart, _depends(lambda services: services.slate_warm_start)]
