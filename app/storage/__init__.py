"""Everything that is kept in Redis: one file for each concern, its Lua scripts, an embedded server."""
