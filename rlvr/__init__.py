"""rlvr: reinforcement learning with verifiable rewards, from the command line."""

__version__ = "0.1.0"
