"""User code in a worker: imported, checked, kept warm and published."""
