"""Retrieval over the Lee corpus: which chunker, query form and retriever find what people call similar?"""
