"""What a package can add to the service: a policy, a constraint, an index, calls and a command."""
