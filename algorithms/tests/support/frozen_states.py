"""States of campaigns as plain values, to be compared to the bit, and copies that share nothing with them."""

from __future__ import annotations

import pickle
from dataclasses import fields, is_dataclass

import numpy as np


def frozen(value):
    """All that a state holds, as tuples and bytes."""
    if isinstance(value, np.ndarray):
        return value.dtype.str, value.shape, value.tobytes()
    if is_dataclass(value):
        return type(value), tuple(frozen(getattr(value, field.name)) for field in fields(value))
    return tuple(map(frozen, value)) if isinstance(value, tuple) else value


def thawed(state):
    """A copy by way of bytes, as after a restart."""
    return pickle.loads(pickle.dumps(state))
