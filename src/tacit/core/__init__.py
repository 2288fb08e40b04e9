"""Values that both sides share: plans, catalogs, settings, messages. No person, no network."""
