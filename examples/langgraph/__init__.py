"""LangGraph graphs as their users write them, and what a sweep needs beside each: variants, cases, scores."""
