"""Text from a language model."""

from warmstart.generation.choose import GenerateConfig as GenerateConfig
from warmstart.generation.choose import keep_likeliest as keep_likeliest
from warmstart.generation.counts import Counts as Counts
from warmstart.generation.sample import continue_prompts as continue_prompts
from warmstart.generation.sample import generate as generate
from warmstart.generation.tracing import Trace as Trace
from warmstart.generation.tracing import trace as trace
from warmstart.generation.writing import Written as Written
from warmstart.generation.writing import write as write
