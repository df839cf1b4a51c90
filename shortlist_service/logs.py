"""The log of a command that runs until it is stopped: as that of the service, on standard error."""

from app.platform.logs import set_up_logging

__all__ = ["set_up_logging"]
