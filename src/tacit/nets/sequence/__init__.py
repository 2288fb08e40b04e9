"""Sequence models: encoders, recurrent and attention layers, masked items, windows and segments."""
