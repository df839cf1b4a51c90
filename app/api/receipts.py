"""What became of a batch of rewards or observations: the answer of all endpoints that write to the log."""

from __future__ import annotations

from typing import Literal

from fastapi import Response
from pydantic import BaseModel

from app.api.strict_json import reply
from app.services.learning.rewards import Receipt, Rewards


class RejectedView(BaseModel):
    index: int
    code: str


class ReceiptView(BaseModel):
    accepted: int
    duplicate: int
    rejected: list[RejectedView]


async def receipt_reply(rewards: Rewards, receipt: Receipt, wait: Literal["applied"] | None) -> Response:
    """200 when the caller asked to wait and everything was applied in time, else 202."""
    if wait is not None:
        await rewards.wait(receipt)
    answer = {
        "accepted": receipt.accepted,
        "duplicate": receipt.duplicate,
        "rejected": [{"index": index, "code": code} for index, code in receipt.rejected],
    }
    return reply(answer, 200 if receipt.applied else 202)
