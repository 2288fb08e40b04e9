"""Baselines that a deployment does not have: fitted from pooled data, or with a helper party."""
