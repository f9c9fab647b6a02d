"""The REST API: operations of the registry over HTTP, sign-in, and the pages."""
