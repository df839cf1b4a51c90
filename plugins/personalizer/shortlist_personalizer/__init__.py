"""Azure Personalizer's REST API over a bandit of Shortlist."""
