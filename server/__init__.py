"""Start, composition and administration of the service."""
