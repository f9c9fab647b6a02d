"""Retrieval over the Lee corpus: which chunker, query form and retriever find similar documents?"""
