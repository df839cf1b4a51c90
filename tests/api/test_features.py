"""Features as people have them: fields of metadata, and embeddings that are reduced."""

from typing import Any

import numpy as np
import pytest

from api_client import Api, Json

pytestmark = pytest.mark.anyio

FIELDS: list[Json] = [
    {"name": "genre", "kind": "categories", "values": ["Drama", "Comedy"]},
    {"name": "list price", "kind": "number", "mean": 3, "scale": 2, "log": True},
    {"name": "brand", "kind": "category", "values": ["Aero"]},
    {"name": "maker.country", "kind": "category", "values": ["de"]},
    {"name": "hour", "kind": "cycle", "period": 24},
    {"name": "title", "kind": "hash", "size": 4},
    {"name": "tags", "kind": "categories", "values": ["new"]},
]
COLUMNS = [
    "genre=Drama", "genre=Comedy", "list price", "brand=Aero", "maker.country=de", "hour.cos", "hour.sin",
    "title.0", "title.1", "title.2", "title.3", "tags=new",
]  # fmt: skip
SHOE = {
    "id": "shoe",
    "tags": ["new", "red"],
    "metadata": {
        "genre": ["Drama", "Comedy", "Noir"],
        "list price": 20,
        "brand": "Aero",
        "maker": {"country": "de"},
        "hour": 6,
        "title": "running running shoe",
    },
}
NUMBERS = [1, 1, (np.log1p(20) - 3) / 2, 1, 1, 0, 1]


def arms_path(name: str, arm: str = "") -> str:
    return f"/v1/catalogues/{name}/arms" + (f"/{arm}" if arm else "")


async def made(api: Api, name: str, features: Json, **more: Any) -> Json:
    found: Json = await api.ok("PUT", f"/v1/catalogues/{name}", {"features": features, **more}, 201)
    return found


async def put(api: Api, name: str, *arms: Json) -> Json:
    done: Json = await api.ok("PUT", arms_path(name), {"arms": list(arms)})
    return done


async def features_of(api: Api, name: str, arm: str) -> list[float]:
    found: list[float] = (await api.ok("GET", arms_path(name, arm)))["features"]
    return found


async def test_metadata_becomes_the_numbers_that_the_columns_name(shared: Api):
    view = await made(shared, "fields", {"fields": FIELDS})
    assert (view["dim"], view["columns"]) == (len(COLUMNS), COLUMNS)
    await put(shared, "fields", SHOE)
    found = await features_of(shared, "fields", "shoe")
    assert found[:7] == pytest.approx(NUMBERS, abs=1e-7)
    assert np.sum(np.square(found[7:11])) == pytest.approx(1.0)
    assert found[11] == 1.0
    assert all(np.float32(number) == number for number in found)
