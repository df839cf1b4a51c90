"""Every server that is at hand, and a cluster, is a store."""

from contracts.store import StoreContract


class TestStores(StoreContract):
    """The fixture ``store`` is in ``conftest.py``: it has a parameter for each server."""
