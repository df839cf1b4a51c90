"""The store when no Redis is named: a server that is a supervised child."""
