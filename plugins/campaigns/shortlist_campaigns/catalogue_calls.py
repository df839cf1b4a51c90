"""POST /v1/catalogues/{c}/centers: k representative arms."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BaseModel, Field

from shortlist_campaigns.campaign_limits import MAX_K
from shortlist_campaigns.catalogue_centers import CatalogueCenters, CenterMethod, CentersRequest
from shortlist_service.routes import (
    AttributesView,
    Catalogues,
    Delta,
    FilterBody,
    Identifier,
    OrZero,
    Provided,
    RouteDependencies,
    Routes,
    Seed,
    StrictModel,
    json_router,
    parsed_filter,
    problems,
)

router = json_router(prefix="/v1/catalogues/{catalogue}", tags=["centers"])


class CentersBody(StrictModel):
    """``epsilon`` is in units of |u - v|^2 / dimension; ``mix`` is used by ds_ts alone."""

    k: Annotated[int, Field(ge=1, le=MAX_K)]
    method: CenterMethod = "ds_ucb"
    delta: Delta = 0.1
    ci: Literal["kl", "lil", "experiment"] = "kl"
    c_alpha: Annotated[float, Field(gt=0, le=1e3)] = 0.1
    mix: Annotated[float, Field(ge=0, le=1)] = 0.99
    epsilon: Annotated[float, Field(ge=0, le=1e15)] = 0.0
    first: Identifier | None = None
    seed: Seed | None = None
    filter: FilterBody | None = None


class CenterCostView(AttributesView):
    """Coordinates read of pairs of arms, and what reading all of them would be: arms x dimension x k."""

    reads: int
    exhaustive_reads: int


class CenterGuaranteeView(AttributesView):
    """``exact``: greedy's own centres, always. ``pac``: with probability at least 1 - delta every centre was,
    when it was chosen, within epsilon of the farthest arm. ``none``: no promise.
    """

    kind: Literal["exact", "pac", "none"]
    epsilon: OrZero
    delta: OrZero


class CentersView(BaseModel):
    """``radius`` is the distance from the centres of the arm that is farthest from them."""

    centers: list[str]
    radius: float
    method: str
    guarantee: CenterGuaranteeView
    cost: CenterCostView
    catalogue_version: int
    elapsed_ms: float


@router.post("/centers", response_model=CentersView, responses=problems(409))
async def find(
    catalogue: str, body: CentersBody, catalogues: Provided[Catalogues], centers: Provided[CatalogueCenters]
) -> CentersView:
    """Find k arms that cover the catalogue: greedily, each the farthest from those before it."""
    request = CentersRequest(**body.model_dump(exclude={"filter"}))
    answer = await centers.find(await catalogues.get_fitted(catalogue), request, parsed_filter(body.filter))
    return CentersView.model_validate(
        {
            "centers": answer.ids,
            "radius": answer.centers.radius,
            "method": answer.method,
            "guarantee": answer.centers.guarantee,
            "cost": answer.centers,
            "catalogue_version": answer.catalogue_version,
            "elapsed_ms": answer.elapsed_ms,
        }
    )


class CatalogueCalls(Routes):
    """``POST /v1/catalogues/{catalogue}/centers``."""

    router = router
    scopes: ClassVar[Mapping[str, str]] = {"POST /centers": "read"}
    examples: ClassVar[Mapping[str, Mapping[str, Any]]] = {"POST /centers": {"k": 2, "method": "naive"}}

    def services(self, dependencies: RouteDependencies) -> Mapping[str, object]:
        return {"centers": CatalogueCenters(dependencies.filtered)}
