"""Classifiers without a network and stacks of classifiers, in memory and as saved folders."""
