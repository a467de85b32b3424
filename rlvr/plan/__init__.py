"""Memory and time of a run before it starts, from its configuration alone; pure functions, torch-free."""
