"""A command from outside: a subclass of ``Command``, which ``shortlist NAME`` runs.

from shortlist_service.commands import Command

class Hello(Command):
summary = "say hello"

def add_arguments(self, parser):
parser.add_argument("name")

def run(self, given):
print(f"hello, {given.name}")
"""

from app.platform.command_line import Command, seconds, table, writable
from app.platform.plugins import Plugin, plugins
from app.platform.settings import Settings

__all__ = ["Command", "Plugin", "Settings", "plugins", "seconds", "table", "writable"]
