"""Arms and filters of every shape, for tests that draw quotas."""

from __future__ import annotations

import random
from typing import Any

Json = dict[str, Any]

TAGS = ["new", "old", "sale"]


def documents() -> list[tuple[list[str], Json]]:
    """Tags and metadata of arms: some lack fields, some have fields of several kinds."""
    draw = random.Random(52)
    metadata: dict[str, list[Any]] = {
        "campaign": [0, 1, 2, 3, "1"],
        "price": [0, 1, 2.5, 3, 4, 2**53 + 1, None, [0, 4], [2**53 + 1, 1]],
        "stock": [True, False],
        "maker": ["ada", "bob", ["ada", "bob"]],
        "shelf": [{"row": 1}, {"row": 2, "side": "left"}],
    }
    return [
        (
            draw.sample(TAGS, draw.randrange(3)),
            {name: draw.choice(values) for name, values in metadata.items() if draw.random() < 0.7},
        )
        for _ in range(40)
    ]


def quota_filters_of(draw: random.Random) -> list[Json]:
    """One of each shape: equalities, orders, sets, negations, alternatives, nested, overlapping ones."""
    number, name = draw.randrange(4), draw.choice(["ada", "bob"])
    return [
        {},
        {"campaign": number},
        {"campaign": str(number)},
        {"campaign": {"$in": [number, number + 1]}},
        {"campaign": {"$in": [*range(number, number + 12)]}},
        {"campaign": {"$nin": [number]}},
        {"campaign": number, "stock": True},
        {"campaign": number, "price": {"$gt": number}},
        {"price": {"$gte": number}},
        {"price": {"$gt": number, "$lte": number + 2}},
        {"price": {"$gt": number, "$lt": number + 1}, "stock": True},
        {"campaign": {"$gte": number}, "price": {"$gte": number, "$lte": number + 1}},
        {"$or": [{"campaign": number}, {"price": {"$gt": number, "$lt": number + 2}, "stock": True}]},
        {"price": {"$gte": 2**53 + 1}},
        {"price": {"$exists": bool(number % 2)}},
        {"stock": {"$ne": True}},
        {"stock": {"$not": {"$eq": False}}},
        {"maker": name},
        {"maker": {"$gt": "b"}},
        {"tags": "new"},
        {"tags": {"$in": ["sale", "old"]}, "stock": True},
        {"shelf.row": number},
        {"shelf.side": {"$exists": True}},
        {"$or": [{"tags": "new"}, {"price": {"$gt": number}}]},
        {"$and": [{"campaign": number}, {"$or": [{"maker": name}, {"stock": False}]}]},
        {"$not": {"campaign": number}},
        {"$not": {"$or": [{"price": {"$lt": number}}, {"maker": {"$in": [name]}}]}},
    ]
