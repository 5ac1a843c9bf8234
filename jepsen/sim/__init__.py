"""Whole clusters in one process, on virtual time, under one seed, with every fault.

Everything of a node is real but what surrounds it: its process, clock, network, disk and the outside
resources. The seed is the bug report: the same seed gives the same run, event for event.
"""
