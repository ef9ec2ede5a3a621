"""Make the package's embedded images: the first 300 of each class of Fashion-MNIST's training set.

    python tools/make_embedded.py FOLDER

FOLDER holds Fashion-MNIST in any form that ``exhume data`` accepts. The images keep their official
order. The same images give the same bytes with the same zlib: no dates, fixed order.
"""

from __future__ import annotations

import hashlib
import io
import sys
import zipfile
from pathlib import Path

import numpy as np

from exhume.data.catalogue import FASHION_MNIST
from exhume.data.embedded import FILE
from exhume.data.folder import search_folders
from exhume.protocol.arrays import Array

PER_CLASS = 300
EARLIEST_DATE = (1980, 1, 1, 0, 0, 0)


def first_of_each_class(labels: Array, count: int) -> Array:
    """Return the positions of the first ``count`` of each class, in increasing order."""
    chosen = [np.flatnonzero(labels == label)[:count] for label in np.unique(labels)]
    return np.sort(np.concatenate(chosen))


def archive_bytes(arrays: dict[str, Array]) -> bytes:
    """Pack ``arrays`` as an .npz whose bytes depend on nothing but them."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for key, array in arrays.items():
            member = io.BytesIO()
            np.lib.format.write_array(member, array, allow_pickle=False)
            info = zipfile.ZipInfo(f"{key}.npy", date_time=EARLIEST_DATE)
            info.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(info, member.getvalue(), compresslevel=9)
    return packed.getvalue()


def main() -> None:
    """Write the file, and print what a test compares."""
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    train = FASHION_MNIST.read(search_folders(Path(sys.argv[1]))).train[0]
    index = first_of_each_class(train.labels, PER_CLASS)
    x, y = train.images[index], train.labels[index].astype(np.uint8)
    FILE.write_bytes(archive_bytes({"x": x, "y": y}))
    print(f"{FILE}: {FILE.stat().st_size:,} bytes, {len(x)} images")
    print(f"SHA-256 of x: {hashlib.sha256(x.tobytes()).hexdigest()}")
    print(f"SHA-256 of y: {hashlib.sha256(y.tobytes()).hexdigest()}")


if __name__ == "__main__":
    main()
