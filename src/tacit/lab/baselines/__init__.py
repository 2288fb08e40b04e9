"""Baselines that a deployment does not have: fitted from pooled data (`central`), or with a helper party (`helpers`)."""
