"""What starts, composes and administers the service."""
