"""The domain: values, statuses, identifiers, errors and texts. It does no I/O and imports nothing but itself."""
