"""Settings of plug-ins: read from the environment as those of the service, and listed beside them."""

from __future__ import annotations

from collections.abc import Mapping

from pydantic_settings import BaseSettings, SettingsConfigDict

from app.platform import plugins
from app.platform.errors import StartupError
from app.platform.settings import PREFIX, Settings


class PluginSettings(BaseSettings):
    """Settings of a plug-in: a subclass, named by an entry point of the group ``shortlist.settings``.

    Each field is read from ``SHORTLIST_<NAME>``; no other setting may have its name. A ``Field`` with a
    default and a description says what it is. An object of the class has the values of this process: make one
    where they are needed.
    """

    model_config = SettingsConfigDict(env_prefix=PREFIX, extra="ignore")


def load() -> Mapping[str, PluginSettings]:
    """The settings of all plug-ins. Raises StartupError: a value is out of bounds, or a name is taken."""
    settings = plugins.load("settings", PluginSettings)
    taken_names = {*Settings.model_fields}
    for name, plugin_settings in settings.items():
        fields = {*type(plugin_settings).model_fields}
        if repeated := sorted(taken_names & fields):
            raise StartupError(
                f"the settings {name} of a plug-in have names that are taken: {', '.join(repeated)}"
            )
        taken_names |= fields
    return settings


def names_of_plugins() -> list[str]:
    """The names of the settings of all plug-ins."""
    return [name for plugin_settings in load().values() for name in type(plugin_settings).model_fields]
