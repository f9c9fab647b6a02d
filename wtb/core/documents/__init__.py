"""The types of the JSON documents that commands print, listed in `catalog`, and the texts of events."""
