"""Pages of the console from outside: a ``ConsolePage``.

    from pathlib import Path
    from shortlist_service.console import ConsolePage

    page = ConsolePage("Greetings", Path(__file__).with_name("page-greetings.js"))

The name of its entry point is the first part of its address: ``/console#/greetings``.
"""

from app.api.console import ConsolePage

__all__ = ["ConsolePage"]
