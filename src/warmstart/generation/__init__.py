"""Text from a language model."""

from warmstart.generation.sample import GenerateConfig as GenerateConfig
from warmstart.generation.sample import generate as generate
from warmstart.generation.sample import keep_likeliest as keep_likeliest
