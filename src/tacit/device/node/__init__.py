"""A real machine: its store, its history file, its people in one batch, and its place on Flower."""
