"""Privacy: what is sent, what it costs, and why. Ground: no person, no network."""
