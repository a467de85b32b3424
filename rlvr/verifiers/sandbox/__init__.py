"""Generated programs, run where they can harm nothing: see `Sandbox`."""

from rlvr.verifiers.sandbox.client import BACKENDS, Limits, Outcome, Program, Sandbox, SandboxError

__all__ = ["BACKENDS", "Limits", "Outcome", "Program", "Sandbox", "SandboxError"]
