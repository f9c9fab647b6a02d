"""The measured workflows."""
