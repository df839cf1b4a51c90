"""The Python client has the settings of a bandit as the service defines them."""

import generate_settings


def test_the_settings_of_the_client_are_those_of_the_service():
    assert generate_settings.TARGET.read_text() == generate_settings.generated(), "run: make client-types"
