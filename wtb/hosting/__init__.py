"""Hosting: REST API and pages, their client, the stack of `wtb up`, tools of agents, metrics and diagnostics."""
