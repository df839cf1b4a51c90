"""A command from outside: a subclass of ``Command``, which ``shortlist NAME`` runs.

    from shortlist_service.commands import Command

    class Hello(Command):
        summary = "say hello"

        def add_arguments(self, parser):
            parser.add_argument("name")

        def run(self, given):
            print(f"hello, {given.name}")

One that calls a running service adds its options by ``add_service``, and has a client by ``connect``. Every
``shortlist`` loads the modules of all commands: import within ``run`` what takes long.
"""

from app.platform.command_line import (
    Command,
    add_history_options,
    add_service,
    add_settings,
    client_errors,
    connect,
    flag_of,
    given_options,
    history_options,
    settings_of,
    table,
    writable,
    write,
)
from app.platform.plugins import Plugin, plugins
from app.platform.settings import Settings

__all__ = [
    "Command",
    "Plugin",
    "Settings",
    "add_history_options",
    "add_service",
    "add_settings",
    "client_errors",
    "connect",
    "flag_of",
    "given_options",
    "history_options",
    "plugins",
    "settings_of",
    "table",
    "writable",
    "write",
]
