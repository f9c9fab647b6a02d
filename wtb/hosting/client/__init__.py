"""The client of a WTB server: operations as requests, and results made from the returned documents."""
