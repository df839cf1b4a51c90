"""Indexes over the arms of a catalogue: built, chosen by measuring, searched and shared."""
