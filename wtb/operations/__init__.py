"""The application: the registry and the operations that commands, Python, HTTP and agents call."""
