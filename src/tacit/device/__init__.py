"""Device: sees one person. What leaves, leaves by the gate."""
