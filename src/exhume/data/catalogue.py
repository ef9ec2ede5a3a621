"""The data sets known by name: one table, read by the loader and by the listing.

The names of the image sets' classes, in the order of their labels.
"""

from __future__ import annotations

from exhume.data.cifar import CifarBinaryLayout
from exhume.data.cifar_pickle import CifarPickleLayout
from exhume.data.dataset import Task
from exhume.data.embedded import EmbeddedImages
from exhume.data.folder import FolderImages
from exhume.data.idx import IdxLayout
from exhume.data.images import ImageKind
from exhume.data.mixed_tables import DiabetesLevels
from exhume.data.npz import NpzLayout
from exhume.data.source import Source
from exhume.data.tables import SklearnTable


def _names(text: str) -> tuple[str, ...]:
    return tuple(text.split())


DIGITS = _names("0 1 2 3 4 5 6 7 8 9")


FASHION = (
    "T-shirt/top",
    "Trouser",
    "Pullover",
    "Dress",
    "Coat",
    "Sandal",
    "Shirt",
    "Sneaker",
    "Bag",
    "Ankle boot",
)


CIFAR10 = _names("airplane automobile bird cat deer dog frog horse ship truck")


CIFAR100 = _names(
    """
    apple aquarium_fish baby bear beaver bed bee beetle bicycle bottle bowl boy bridge bus
    butterfly camel can castle caterpillar cattle chair chimpanzee clock cloud cockroach couch crab
    crocodile cup dinosaur dolphin elephant flatfish forest fox girl hamster house kangaroo keyboard
    lamp lawn_mower leopard lion lizard lobster man maple_tree motorcycle mountain mouse mushroom
    oak_tree orange orchid otter palm_tree pear pickup_truck pine_tree plain plate poppy porcupine
    possum rabbit raccoon ray road rocket rose sea seal shark shrew skunk skyscraper snail snake
    spider squirrel streetcar sunflower sweet_pepper table tank telephone television tiger tractor
    train trout tulip turtle wardrobe whale willow_tree wolf woman worm
    """
)


_FASHION_IMAGES = ImageKind((28, 28), 10, FASHION)
_CIFAR10_BATCHES = tuple(f"data_batch_{number}" for number in range(1, 6))

TABLES: tuple[Source, ...] = (
    SklearnTable(
        "breast-cancer", "breast_cancer", Task.BINARY, (30,), 569, ("malignant", "benign")
    ),
    SklearnTable("wine", "wine", Task.MULTICLASS, (13,), 178, ("class_0", "class_1", "class_2")),
    SklearnTable("diabetes", "diabetes", Task.REGRESSION, (10,), 442),
    # Its response, a score of 25–346, only takes whole values.
    SklearnTable("diabetes-counts", "diabetes", Task.COUNTS, (10,), 442),
    SklearnTable("digits", "digits", Task.MULTICLASS, (8, 8), 1797, DIGITS, divisor=16.0),
)

MIXED: tuple[Source, ...] = (DiabetesLevels(),)
"""Tables with columns of several kinds, and their schema."""

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
    *MIXED,
    *FOLDER_IMAGES,
)
