"""What a process is configured by: settings, addresses, credentials, and how YAML is read and refused."""
