"""Networks as descriptions: frozen, comparable, cheap to import; modules are built from them."""

from exhume.models.base import Activation, Network
from exhume.models.cnn import CNN, Convolution
from exhume.models.exported import Exported
from exhume.models.imported import Imported
from exhume.models.initialise import Initialisation, Scheme
from exhume.models.mlp import MLP

__all__ = [
    "CNN",
    "MLP",
    "Activation",
    "Convolution",
    "Exported",
    "Imported",
    "Initialisation",
    "Network",
    "Scheme",
]
