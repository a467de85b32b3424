"""What runs inside the isolated interpreter.

These modules import the standard library and each other only: the interpreter sees no site-packages and not the rest
of this package.
"""
