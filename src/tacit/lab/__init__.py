"""Lab: sees everything, on a researcher's machine only. Nothing that is deployed imports it."""
