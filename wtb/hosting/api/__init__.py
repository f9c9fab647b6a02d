"""The REST API: operations of the registry over HTTP."""
