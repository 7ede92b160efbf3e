"""Text from a language model."""

from warmstart.generate.sample import GenerateConfig as GenerateConfig
from warmstart.generate.sample import generate as generate
from warmstart.generate.sample import keep_likeliest as keep_likeliest
