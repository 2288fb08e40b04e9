"""Parts that several mechanisms share; none of them is a mechanism."""
