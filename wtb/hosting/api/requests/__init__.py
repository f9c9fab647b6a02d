"""What requests have in common: that they are sent again, and that they take long."""
