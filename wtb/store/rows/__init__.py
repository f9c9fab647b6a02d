"""Rows as they are read: a frozen type for each thing that is stored, in the module that its table is in.

A record has the columns of its table, in their order; what a query adds, comes after them.
"""
