"""Data: sets known by name, the user's own files, checks before training, and splits."""

from exhume.data.checks import check_for_training
from exhume.data.dataset import DataSet, Sizes, Task
from exhume.data.files import read_records
from exhume.data.sets import load, names
from exhume.data.split import Split, restrict_classes, split_records, without_copies

__all__ = [
    "DataSet",
    "Sizes",
    "Split",
    "Task",
    "check_for_training",
    "load",
    "names",
    "read_records",
    "restrict_classes",
    "split_records",
    "without_copies",
]
