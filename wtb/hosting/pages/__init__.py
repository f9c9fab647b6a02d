"""The pages that `wtb serve` shows in a browser: modules as they stand in `web`, without a build."""
