"""Files by content, snapshots of directories, and workspaces. SQL is used only to find where they are."""
