"""What plug-ins raise: each has its status in the API, and names a field by its path."""

from app.platform.errors import (
    BadRequest,
    Conflict,
    DimensionMismatch,
    FieldPath,
    Invalid,
    NotFitted,
    NotFound,
    ShortlistError,
    StartupError,
    TooLarge,
    Unavailable,
    named_by,
    within,
)
from app.platform.phrases import counted

__all__ = [
    "BadRequest",
    "Conflict",
    "DimensionMismatch",
    "FieldPath",
    "Invalid",
    "NotFitted",
    "NotFound",
    "ShortlistError",
    "StartupError",
    "TooLarge",
    "Unavailable",
    "counted",
    "named_by",
    "within",
]
