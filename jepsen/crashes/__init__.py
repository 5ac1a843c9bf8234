"""What a crash leaves of a node's files, and whether it is what was promised.

A *life* (:mod:`plan`, :mod:`life`) does everything that storage does, in an order that its seed decides,
and acknowledges each thing when it is durable. A *judge* (:mod:`judge`) opens what a crash left, knows
from the seed what had to be there, and says what is wrong. The two meet in memory, where every state a
crash can leave is made (:mod:`recording`, :mod:`aftermath`, :mod:`explore`), and as two commands, so that
any other way to make such states can be used.
"""
