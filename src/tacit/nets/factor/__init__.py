"""Factor models: least squares, BPR, softmax regression."""
