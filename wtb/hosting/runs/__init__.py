"""Runs on this machine, for a server that imports no user code: what is registered here, and what runs it."""
