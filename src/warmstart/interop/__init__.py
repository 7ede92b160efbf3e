"""Models that were made elsewhere: their folders read into bundles, and bundles written as such folders."""

from warmstart.interop.convert import from_huggingface as from_huggingface
from warmstart.interop.convert import from_tensors as from_tensors
from warmstart.interop.convert import to_tensors as to_tensors
from warmstart.interop.export import to_huggingface as to_huggingface
from warmstart.interop.families import FAMILIES as FAMILIES
from warmstart.interop.family import Family as Family
from warmstart.interop.hub import find_folder as find_folder
from warmstart.interop.peft import read_lora as read_lora
from warmstart.interop.peft import write_lora as write_lora
