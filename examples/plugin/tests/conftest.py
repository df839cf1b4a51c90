"""The service of the tests comes with Shortlist."""

pytest_plugins = ["shortlist_service.testing.fixtures"]
