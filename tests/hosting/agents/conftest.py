"""Without the SDK the tests here cannot be imported: then one of them says so, and the others of the suite run."""

from importlib.util import find_spec

collect_ignore = [] if find_spec("mcp") else ["task_client.py", "test_agents.py", "test_tasks.py", "test_transports.py"]
