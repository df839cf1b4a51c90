"""How things look in the store, and cursors of lists."""
