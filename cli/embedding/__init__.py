"""A node inside a program of its own: what ``from fencepost import Node, Outbox`` gives out. No part of the command."""
