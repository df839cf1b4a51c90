"""Indexes over the arms of a catalogue: built, planned, searched and shared."""
