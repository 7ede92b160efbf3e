"""Text from a language model."""

from warmstart.generation.choose import GenerateConfig as GenerateConfig
from warmstart.generation.choose import keep_likeliest as keep_likeliest
from warmstart.generation.sample import continue_prompts as continue_prompts
from warmstart.generation.sample import generate as generate
from warmstart.generation.write import Written as Written
from warmstart.generation.write import write as write
