"""Retrieval that grades what it found, one grader for each document, and asks anew where too little was good."""
