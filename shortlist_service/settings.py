"""Settings from outside: a subclass of ``PluginSettings``.

    from pydantic import Field
    from shortlist_service.settings import PluginSettings

    class GreetingSettings(PluginSettings):
        greeting_cache_mb: int = Field(default=64, ge=1, description="Memory for greetings.")

The variable is the name in upper case after ``SHORTLIST_``. ``GreetingSettings().greeting_cache_mb`` is the
value.
"""

from app.platform.plugin_settings import PluginSettings

__all__ = ["PluginSettings"]
