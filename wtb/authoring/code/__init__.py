"""Users' code: how it is found, called, and told apart from what it was."""
