"""Data: any log in, a population out. Tables, readers of public datasets, downloads, descriptions."""

from tacit.lab.data.population import Population as Population
from tacit.lab.data.population import from_events as from_events
