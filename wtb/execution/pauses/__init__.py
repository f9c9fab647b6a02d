"""What holds an execution up before its next step."""
