"""Servers that WTB can start by itself on one machine: no Docker, no root, nothing to configure."""
