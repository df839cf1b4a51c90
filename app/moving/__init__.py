"""Moving bandits to other catalogues, with what they have learned."""
