"""The route class: what an endpoint may take, and where it gets it from."""

from types import SimpleNamespace
from typing import Any, get_origin, get_type_hints

import httpx
import pytest
from fastapi import FastAPI

from app.api import documentation
from app.api.strict_json import JsonRoute, Provided, StrictModel, json_router
from app.platform.settings import Settings
from server.application import create_app

pytestmark = [pytest.mark.anyio, pytest.mark.rest]


class Body(StrictModel):
    x: int


class Greeter:
    def greet(self, name: str) -> str:
        return f"hello {name}"


router = json_router(tags=[])


@router.post("/v1/{name}")
async def echo(name: str, body: Body, greeter: Provided[Greeter]) -> dict[str, Any]:
    return {"greeting": greeter.greet(name), "x": body.x}


async def test_a_service_is_found_by_its_name_and_is_no_parameter_of_the_api():
    app: Any = FastAPI()
    app.service = SimpleNamespace(greeter=Greeter(), settings=Settings())
    app.router.routes += router.routes
    (operation,) = documentation.document(app)["paths"]["/v1/{name}"].values()
    assert [parameter["name"] for parameter in operation["parameters"]] == ["name"]
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://test") as http:
        answer = await http.post("/v1/n", json={"x": 1})
        assert answer.json() == {"greeting": "hello n", "x": 1}
        assert (await http.post("/v1/n?greeter=z", json={"x": 1})).status_code == 422


def test_every_service_that_an_endpoint_asks_for_is_there_and_of_its_type():
    app = create_app(Settings(redis_url="redis://127.0.0.1:1"))
    asked = 0
    for route in app.routes:
        if isinstance(route, JsonRoute):
            plain = get_type_hints(route.endpoint)
            marked = get_type_hints(route.endpoint, include_extras=True)
            for name, hint in marked.items():
                if hint == Provided[plain[name]]:  # type: ignore[misc]
                    kind = get_origin(plain[name]) or plain[name]
                    assert isinstance(getattr(app.service, name), kind), (route.path, name)
                    asked += 1
    assert asked >= 60
