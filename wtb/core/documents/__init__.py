"""The types of the JSON documents that commands print; `catalog` lists them."""
