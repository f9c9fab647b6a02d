"""Commands about projects, sessions, budgets, policies, databases, servers, workers and the stack."""
