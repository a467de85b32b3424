"""Reports over finished and running runs: families by seed, curves with bands, differences, coverage, costs."""
