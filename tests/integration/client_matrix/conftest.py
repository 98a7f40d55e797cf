"""Fixtures of this folder: a cluster and the client programs beside it."""

from .cluster import cluster, programs

__all__ = ["cluster", "programs"]
