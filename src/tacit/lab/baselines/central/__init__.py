"""Central baselines: fitted from pooled raw data, for comparison only. One file is one baseline, found by being there."""
