"""Users, teams, roles, access tokens and the audit log."""
