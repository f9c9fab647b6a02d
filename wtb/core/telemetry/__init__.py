"""What is known of how the system itself does, and under which ids it is told elsewhere."""
