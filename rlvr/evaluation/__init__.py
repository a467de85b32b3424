"""`rlvr eval`: benchmarks answered by a checkpoint, what may be said of the result, and differences of two results."""
