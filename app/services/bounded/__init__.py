"""What may take only so much: memory and threads."""
