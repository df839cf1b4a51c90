"""One-shot questions about a catalogue."""
