"""Public logs as their owners publish them, one file for each family. None ships with the package."""
