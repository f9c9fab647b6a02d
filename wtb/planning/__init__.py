"""From a sweep file and its cases to a submission. All is checked before anything is written."""
