"""What monitoring systems are told of executions, as rows."""
