"""The embedded store: a Redis server as a supervised child, when no address is configured."""
