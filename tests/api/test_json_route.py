"""The route class: what an endpoint may take, and where it gets it from."""

from collections.abc import AsyncIterator, Iterator
from dataclasses import fields
from types import SimpleNamespace
from typing import Annotated, Any, get_args

import httpx
import pytest
from fastapi import Depends, FastAPI, Request
from fastapi.params import Depends as Marked

from app.api import documentation, services
from app.api.strict_json import StrictModel, json_router

pytestmark = pytest.mark.anyio


class Body(StrictModel):
    x: int


def header(request: Request) -> str:
    return request.headers["x-given"]


router = json_router(tags=[])


@router.post("/v1/{name}")
async def echo(name: str, body: Body, given: Annotated[str, Depends(header)]) -> dict[str, Any]:
    return {"name": name, "x": body.x, "given": given}


async def test_a_dependency_is_called_with_the_request_and_is_no_parameter_of_the_api():
    app = FastAPI()
    app.router.routes += router.routes
    documentation.install(app)
    (operation,) = app.openapi()["paths"]["/v1/{name}"].values()
    assert [parameter["name"] for parameter in operation["parameters"]] == ["name"]
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://test") as http:
        answer = await http.post("/v1/n", json={"x": 1}, headers={"x-given": "y"})
        assert answer.json() == {"name": "n", "x": 1, "given": "y"}
        assert (await http.post("/v1/n?given=z", json={"x": 1}, headers={"x-given": "y"})).status_code == 422


async def awaited(request: Request) -> None: ...


def cleaned_up(request: Request) -> Iterator[None]:
    yield


async def awaited_and_cleaned_up(request: Request) -> AsyncIterator[None]:
    yield


def with_its_own(request: Request, given: Annotated[str, Depends(header)]) -> None: ...


def without_request() -> None: ...


@pytest.mark.parametrize(
    "dependency", [awaited, cleaned_up, awaited_and_cleaned_up, with_its_own, without_request]
)
def test_a_dependency_that_would_not_be_resolved_is_refused_where_it_is_written(dependency: Any):
    async def endpoint(given: Any) -> None: ...

    endpoint.__annotations__["given"] = Annotated[Any, Depends(dependency)]
    with pytest.raises(TypeError, match="plain function of the request"):
        json_router(tags=[]).add_api_route("/", endpoint)


def test_every_service_can_be_asked_for_and_is_the_one_that_the_type_says():
    """The aliases give the fields of ``Services``, each of its own type."""
    made = services.Services(**{field.name: field.name for field in fields(services.Services)})  # type: ignore[arg-type]
    request = Request({"type": "http", "app": SimpleNamespace(services=made)})
    hints = {field.name: getattr(services, str(field.type)) for field in fields(services.Services)}
    found = {}
    for name, alias in vars(services).items():
        if name.endswith("Dep"):
            kind, mark = get_args(alias)
            assert isinstance(mark, Marked)
            found[mark.dependency(request)] = kind  # type: ignore[misc]
    assert found == hints
