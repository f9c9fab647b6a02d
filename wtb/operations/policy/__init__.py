"""Policies: rules of the house, in Cedar, asked after who somebody is and what their token may do."""
