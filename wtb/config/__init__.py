"""Configuration of a process: settings, run options, addresses, credentials, and strict reading of YAML."""
