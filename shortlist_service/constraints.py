"""A constraint from outside: a subclass of ``PluginConstraint`` with ``view``.

    from shortlist_service.constraints import Document, PluginConstraint, View, parse_filter

    class Only(PluginConstraint):
        class Options(Document, frozen=True):
            maker: str

        own_options = Options

        async def view(self, choice, request):
            return View(arm_filter=parse_filter({"maker": self.options_of(request).maker}))

A bandit asks for it by the name of its entry point: ``"constraints": {"only": {"maker": "acme"}}``. The
docstring of ``Constraint`` says in which order a choice calls its methods.
"""

from app.filters.filter import Filter, none_of
from app.filters.filter import parse as parse_filter
from app.platform.documents import Document
from app.selection.list_limits import AtMost, CappedValues, Limit
from app.selection.request import ChooseRequest
from app.selection.rules import Pin
from app.selection.selection import SelectionRequest
from app.serving.constraints.base import Constraint, LogRecord, Shown, View
from app.serving.constraints.plugin_constraint import PluginConstraint
from app.storage.types import LearnerId

__all__ = [
    "AtMost",
    "CappedValues",
    "ChooseRequest",
    "Constraint",
    "Document",
    "Filter",
    "LearnerId",
    "Limit",
    "LogRecord",
    "Pin",
    "PluginConstraint",
    "SelectionRequest",
    "Shown",
    "View",
    "none_of",
    "parse_filter",
]
