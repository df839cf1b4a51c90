"""What plug-ins raise: each has its status in the API, and names a field by its path."""

from app.platform.errors import (
    Conflict,
    DimensionMismatch,
    FieldPath,
    Invalid,
    NotFound,
    ShortlistError,
    StartupError,
    TooLarge,
    Unavailable,
    named_by,
)

__all__ = [
    "Conflict",
    "DimensionMismatch",
    "FieldPath",
    "Invalid",
    "NotFound",
    "ShortlistError",
    "StartupError",
    "TooLarge",
    "Unavailable",
    "named_by",
]
