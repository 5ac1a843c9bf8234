"""The contract kit: a matrix of faults, run against a handler or resource of the user's own.

``fencepost.testing`` is the public name of what is in here.
"""
