"""Control of executions: pause, cancel, answer, edit, roll back, fork."""
