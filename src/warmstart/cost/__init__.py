"""What a model costs: parameters, operations and memory, by formula and measured."""
