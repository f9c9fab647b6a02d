"""Text for terminals, from documents: one module for each subject."""
