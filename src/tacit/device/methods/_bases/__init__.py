"""Base classes and helpers that several methods share; none of them is a method."""
