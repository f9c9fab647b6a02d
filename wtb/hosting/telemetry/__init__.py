"""What monitoring systems read: metrics, and traces made from the log."""
