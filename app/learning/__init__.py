"""Learning: rewards, the log of them, and the learners that are folded from the log."""
