"""Tools of the Model Context Protocol for agents that decide by Shortlist."""
