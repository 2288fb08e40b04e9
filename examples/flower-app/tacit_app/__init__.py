"""Tacit's rounds as a plain Flower app: the node's and the server's code that is installed, by Flower's public Message API."""
