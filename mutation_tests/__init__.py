"""Which mistakes in the code would the tests notice? Mutation testing; see docs/mutants.md."""
