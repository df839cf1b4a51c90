"""One-shot questions about a catalogue or given vectors: searches, draws and centres."""
