"""Users' code: how it is found, called, and compared with what it was."""
