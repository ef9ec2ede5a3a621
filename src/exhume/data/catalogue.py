"""The data sets known by name: one table, read by the loader and by the listing."""

from __future__ import annotations

from exhume.data.cifar import CifarBinaryLayout
from exhume.data.cifar_pickle import CifarPickleLayout
from exhume.data.class_names import CIFAR10, CIFAR100, DIGITS, FASHION
from exhume.data.dataset import Task
from exhume.data.embedded import EmbeddedImages
from exhume.data.folder import FolderImages
from exhume.data.idx import IdxLayout
from exhume.data.images import ImageKind
from exhume.data.npz import NpzLayout
from exhume.data.source import Source
from exhume.data.tables import Table

_FASHION_IMAGES = ImageKind((28, 28), 10, FASHION)
_CIFAR10_BATCHES = tuple(f"data_batch_{number}" for number in range(1, 6))

TABLES: tuple[Source, ...] = (
    Table("breast-cancer", "breast_cancer", Task.BINARY, (30,), 569, ("malignant", "benign")),
    Table("wine", "wine", Task.MULTICLASS, (13,), 178, ("class_0", "class_1", "class_2")),
    Table("diabetes", "diabetes", Task.REGRESSION, (10,), 442),
    # Its response, a score of 25–346, only takes whole values.
    Table("diabetes-counts", "diabetes", Task.COUNTS, (10,), 442),
    Table("digits", "digits", Task.MULTICLASS, (8, 8), 1797, DIGITS, divisor=16.0),
)

FASHION_MNIST = FolderImages(
    "fashion-mnist",
    _FASHION_IMAGES,
    (
        NpzLayout(("fashion_mnist.npz", "fashion-mnist.npz")),
        IdxLayout(("fashion-mnist", "fashion_mnist", "FashionMNIST/raw", "FashionMNIST")),
    ),
    also="Or install Debian's package dataset-fashion-mnist.",
)

FOLDER_IMAGES: tuple[FolderImages, ...] = (
    FolderImages(
        "mnist",
        ImageKind((28, 28), 10, DIGITS),
        (NpzLayout(("mnist.npz",)), IdxLayout(("mnist", "MNIST/raw", "MNIST"))),
    ),
    FASHION_MNIST,
    FolderImages(
        "cifar-10",
        ImageKind((32, 32, 3), 10, CIFAR10),
        (
            NpzLayout(("cifar10.npz", "cifar-10.npz")),
            CifarBinaryLayout(
                ("cifar-10-batches-bin", "cifar-10"),
                tuple(f"{name}.bin" for name in _CIFAR10_BATCHES),
                "test_batch.bin",
                label_bytes=1,
            ),
            CifarPickleLayout(
                ("cifar-10-batches-py",), _CIFAR10_BATCHES, "test_batch", label_key="labels"
            ),
        ),
    ),
    FolderImages(
        "cifar-100",
        ImageKind((32, 32, 3), 100, CIFAR100),
        (
            NpzLayout(("cifar100.npz", "cifar-100.npz")),
            CifarBinaryLayout(
                ("cifar-100-binary", "cifar-100"), ("train.bin",), "test.bin", label_bytes=2
            ),
            CifarPickleLayout(("cifar-100-python",), ("train",), "test", label_key="fine_labels"),
        ),
    ),
    FolderImages("olivetti", ImageKind((64, 64), 40), (NpzLayout(("olivetti.npz",)),)),
)

SOURCES: tuple[Source, ...] = (
    EmbeddedImages("fashion-mnist-small", _FASHION_IMAGES),
    *TABLES,
    *FOLDER_IMAGES,
)
