"""The matrix for people and programs: one module for each format, from the document of the JSON contract."""
