"""What keeps memory and threads within bounds."""
