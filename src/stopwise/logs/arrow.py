"""pyarrow, which is optional and slow to import."""

from importlib import import_module
from typing import Any

from stopwise.errors import MissingPackageError


def arrow(module: str = "pyarrow") -> Any:
    """Import pyarrow or a module of it.

    Raises
    ------
    MissingPackageError
        If it is not installed.

    Examples
    --------
    >>> arrow("pyarrow.compute").__name__
    'pyarrow.compute'
    """
    try:
        return import_module(module)
    except ImportError as error:
        raise MissingPackageError(
            "logs in Parquet need pyarrow: pip install 'stopwise[logs]'"
        ) from error
