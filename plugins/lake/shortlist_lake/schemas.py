"""The tables of a lake: what their columns are.

Times are of UTC, to the millisecond. A row is in the day of its ``time``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

TIME = pa.timestamp("ms", tz="UTC")

_ARM = pa.struct(
    [
        ("id", pa.string()),
        ("revision", pa.int64()),
        ("place", pa.int64()),
        ("score", pa.float64()),
        ("propensity", pa.float64()),
        ("pinned", pa.bool_()),
        ("expected", pa.list_(pa.float64())),
        ("effect", pa.list_(pa.float64())),
        ("examined", pa.float64()),
        ("weight", pa.float64()),
        ("age", pa.float64()),
    ]
)
_NUMBERS = pa.list_(pa.float32())
_CANDIDATE = pa.struct([("id", pa.string()), ("features", _NUMBERS), ("match", _NUMBERS)])
DECISIONS = pa.schema(
    [
        ("time", TIME),
        ("decision_id", pa.string()),
        ("key", pa.string()),
        ("bandit_version", pa.int64()),
        ("learner_version", pa.int64()),
        ("catalogue_version", pa.int64()),
        ("policy", pa.string()),
        ("group", pa.string()),
        ("context", pa.list_(pa.float32())),
        ("filter", pa.string()),
        ("eligible", pa.int64()),
        ("arms", pa.list_(_ARM)),
        ("decision", pa.string()),
        ("weights", pa.string()),
        ("prior_version", pa.int64()),
        ("effects_version", pa.int64()),
        ("candidates", pa.list_(_CANDIDATE)),
        ("agreement", pa.struct([("same_first", pa.bool_()), ("overlap", pa.float64())])),
    ]
)
PRIORS = pa.schema(
    [
        ("time", TIME),
        ("version", pa.int64()),
        ("keys", pa.int64()),
        ("observations", pa.float64()),
        ("mean", pa.list_(pa.list_(pa.float64()))),
        ("precision", pa.list_(pa.float64())),
        ("residuals", pa.list_(pa.list_(pa.float64()))),
        ("variation", pa.float64()),
        ("sizes", pa.list_(pa.list_(pa.float64()))),
        ("history", pa.int64()),
    ]
)
REWARDS = pa.schema(
    [
        ("time", TIME),
        ("partition", pa.int32()),
        ("number", pa.int64()),
        ("kind", pa.string()),
        ("key", pa.string()),
        ("decision_id", pa.string()),
        ("observation_id", pa.string()),
        ("arm", pa.string()),
        ("revision", pa.int64()),
        ("value", pa.float64()),
        ("decided", TIME),
        ("first", pa.bool_()),
        ("before", pa.float64()),
        ("replaces", pa.float64()),
        ("context", pa.list_(pa.float32())),
        ("logged", pa.bool_()),
        ("replayed", pa.int64()),
        ("features", pa.list_(pa.float64())),
        ("state", pa.binary()),
        ("examined", pa.float64()),
        ("signal", pa.string()),
        ("signal_number", pa.int32()),
        ("had", pa.list_(pa.float64())),
        ("space", pa.int32()),
        ("expected", pa.list_(pa.float64())),
        ("effect", pa.list_(pa.float64())),
        ("weight", pa.float64()),
        ("age", pa.float64()),
    ]
)
ARMS = pa.schema(
    [
        ("time", TIME),
        ("arm", pa.string()),
        ("revision", pa.int64()),
        ("features", pa.list_(pa.float64())),
    ]
)


SCHEMAS: Mapping[str, Any] = {"decisions": DECISIONS, "rewards": REWARDS, "arms": ARMS, "priors": PRIORS}
