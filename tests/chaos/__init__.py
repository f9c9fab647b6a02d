"""The long run: a sweep under a storm of kills, zombies, emptied queues and crashed servers, and its figures."""
