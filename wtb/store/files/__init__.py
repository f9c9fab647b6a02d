"""Files by content, snapshots of directories, and workspaces. No SQL but for where they are."""
