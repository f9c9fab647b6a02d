"""Judges held against people, and rows ranked by what judges or people prefer."""
