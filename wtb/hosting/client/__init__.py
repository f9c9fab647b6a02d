"""Asking a server of WTB's: operations as requests, and results made of the documents that come back."""
