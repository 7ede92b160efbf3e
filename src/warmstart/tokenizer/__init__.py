"""Tokenizers: train one on a stream of texts, load one made elsewhere, measure how well it fits."""
