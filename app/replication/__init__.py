"""Staying in step with other processes by polling the store, and the health of this one."""
