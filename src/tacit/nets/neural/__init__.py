"""Feed-forward parts: towers, fields, text, graph attention, dropout, local SGD."""
