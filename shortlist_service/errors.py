"""What plug-ins raise: each has its status in the API, and names a field by its path."""

from app.platform.errors import Conflict, Invalid, NotFound, ShortlistError, Unavailable

__all__ = ["Conflict", "Invalid", "NotFound", "ShortlistError", "Unavailable"]
