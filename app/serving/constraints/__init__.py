"""What decides which arms a choice may have: one file for each constraint, and their list."""
