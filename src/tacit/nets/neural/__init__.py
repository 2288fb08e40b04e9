"""Feed-forward networks: layers, losses, two towers, graphs, text, local SGD."""
