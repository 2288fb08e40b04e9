"""Factor models: matrix factorisation, its solvers, BPR, softmax fits."""
