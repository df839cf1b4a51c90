"""Plug-ins: packages that add policies, constraints, indexes, routes and more by entry points.

A package names its parts in the groups ``shortlist.policies`` and so on of its metadata. Every command and
every process of ``--workers`` reads the same environment, so all of them load the same. ``SHORTLIST_PLUGINS``
says which packages: ``*``, the default, means all installed ones; else their names, separated by spaces or
commas.

An entry point which cannot be loaded, is not of the group's type, or has a taken name ends the start: a
service without a requested package would answer other than its owner expects.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from importlib.metadata import EntryPoint, distributions, version
from typing import Any, TypeVar

from pydantic import ValidationError

from app.platform.documents import Document
from app.platform.errors import ShortlistError, StartupError

GROUPS = (
    "policies",
    "constraints",
    "indexes",
    "engines",
    "routes",
    "commands",
    "settings",
    "console_pages",
)
GONE = {"shortlist.arm_sources": "shortlist.engines"}
VARIABLE = "SHORTLIST_PLUGINS"
ALL = "*"
DAMAGED = "the metadata (dist-info) of {} are damaged: install it again"
EARLY = "needs a module of its own: what it imports is loaded after it"
Extension = TypeVar("Extension")


@dataclass(frozen=True, slots=True)
class Plugin:
    """A loaded package. ``provides``: each thing as ``group:name``."""

    name: str
    version: str
    provides: list[str]


@cache
def plugins() -> list[Plugin]:
    """The loaded packages, by name. Raises StartupError: a requested one is not installed.

    Cost: reads the metadata of all installed packages, once.
    """
    wanted, installed = os.environ.get(VARIABLE, ALL).replace(",", " ").split(), _installed()
    names = {*installed} if ALL in wanted else set(map(_normalize, wanted))
    if unknown := sorted(names - installed.keys()):
        raise StartupError(f"{VARIABLE} names {', '.join(unknown)}, which no installed package is called")
    for name in sorted(names):
        for entry_point in installed[name]:
            if entry_point.group in GONE:
                group = GONE[entry_point.group]
                raise StartupError(f"the plug-in {name}: {_shown(entry_point)} is gone: the group is {group}")
    return [Plugin(name, version(name), sorted(map(_shown, installed[name]))) for name in sorted(names)]


def is_loaded(package: str) -> bool:
    return any(plugin.name == package for plugin in plugins())


def load(group: str, kind: type[Extension], taken_names: Collection[str] = ()) -> dict[str, Extension]:
    """The plug-ins' objects of a group, by name, of the type ``kind``; a class is called to make one.

    ``taken_names``: names of the service itself. Raises StartupError, which names the plug-in.
    """
    extensions = dict[str, Extension]()
    added = [(plugin.name, each) for plugin in plugins() for each in _installed()[plugin.name]]
    for plugin, entry_point in added:
        if entry_point.group != f"shortlist.{group}":
            continue
        where = f"the plug-in {plugin}: {entry_point.group}:{entry_point.name}"
        if entry_point.name in taken_names or entry_point.name in extensions:
            raise StartupError(f"{where} has a name that is taken")
        with start_errors(f"{where} cannot be loaded"):
            try:
                extension: Any = entry_point.load()
            except ImportError as error:
                if "partially initialized" in str(error) and (error.name or "").startswith("app."):
                    raise StartupError(f"{where} {EARLY}") from error
                raise
            if isinstance(extension, type):
                extension = extension()
        if not isinstance(extension, kind):
            raise StartupError(f"{where} is no {kind.__name__}")
        options = getattr(extension, "own_options", None)
        if options is not None and not (isinstance(options, type) and issubclass(options, Document)):
            raise StartupError(f"{where} has own_options that are no Document")
        extensions[entry_point.name] = extension
    return extensions


@contextmanager
def start_errors(what: str) -> Iterator[None]:
    """Turn any error of the code of a plug-in into a StartupError of one line, which begins with ``what``."""
    try:
        yield
    except ShortlistError:
        raise
    except ValidationError as error:  # of settings: the value may be a secret
        raise StartupError(f"{what}: {settings_problem(error)}") from None
    except (Exception, SystemExit) as error:
        reason = " ".join(f"{type(error).__name__}: {error}".split())
        raise StartupError(f"{what}: {reason}") from error


def settings_problem(error: ValidationError) -> str:
    """The wrong settings and their rules, without the values."""
    wrong = [(".".join(map(str, item["loc"])), item["msg"]) for item in error.errors(include_input=False)]
    return "; ".join(f"setting {name}: {rule}" for name, rule in wrong)


@cache
def _installed() -> Mapping[str, list[EntryPoint]]:
    """The parts added by packages, by the packages' names; of one found twice the first, as for imports."""
    installed, groups = dict[str, list[EntryPoint]](), {f"shortlist.{group}" for group in GROUPS}
    for package in distributions():
        try:
            added = [
                entry_point
                for entry_point in package.entry_points
                if entry_point.group in groups or entry_point.group in GONE
            ]
        except (TypeError, ValueError):  # a line was cut
            if "[shortlist." not in (package.read_text("entry_points.txt") or ""):
                continue
            raise StartupError(DAMAGED.format("an installed plug-in")) from None
        if not added:
            continue
        # read here: of a file that is cut ``package.name`` breaks
        text = package.read_text("METADATA") or package.read_text("PKG-INFO") or ""
        name = re.search(r"^Name: (.+)$", text, re.MULTILINE)
        if name is None or "\nVersion: " not in text:
            raise StartupError(DAMAGED.format(f"the plug-in that provides {_shown(added[0])}"))
        installed.setdefault(_normalize(name[1]), added)
    return installed


def _shown(entry_point: EntryPoint) -> str:
    return f"{entry_point.group.removeprefix('shortlist.')}:{entry_point.name}"


def _normalize(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()
