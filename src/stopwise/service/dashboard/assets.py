"""The style sheet, the script and the icon: read once, served from memory."""

from hashlib import sha256
from importlib.resources import files

import msgspec

from stopwise.reporting.style import STYLE
from stopwise.service.dashboard.drawing import LEVELS

# From the first arm to the last: away from the paper, so that what goes deep is seen first.
SHADES = {
    "light": ((0xA9, 0xD0, 0xEA), (0x0A, 0x45, 0x6E)),
    "dark": ((0x2F, 0x55, 0x70), (0xA9, 0xD8, 0xF8)),
}


class Asset(msgspec.Struct, frozen=True):
    """A file that pages need.

    Attributes
    ----------
    name : str
        Of the file.
    media_type : str
        What it is.
    content : bytes
        What it holds.
    """

    name: str
    media_type: str
    content: bytes

    @property
    def tag(self) -> str:
        """A few letters that change when the content does."""
        return sha256(self.content).hexdigest()[:12]

    @property
    def address(self) -> str:
        """Where a page finds it."""
        return f"/static/{self.name}?v={self.tag}"


def shades() -> str:
    """Return the rules that colour arms by their depth, for light and dark.

    Examples
    --------
    >>> shades().splitlines()[0]
    '.depth-0 { fill: #a9d0ea; }'
    """
    light, dark = (
        "\n".join(f".depth-{k} {{ fill: {_mixed(*SHADES[s], k)}; }}" for k in range(LEVELS))
        for s in ("light", "dark")
    )
    return f"{light}\n@media (prefers-color-scheme: dark) {{\n{dark}\n}}\n"


def _mixed(first: tuple[int, ...], last: tuple[int, ...], k: int) -> str:
    share = k / (LEVELS - 1)
    mixed = (round(a + share * (b - a)) for a, b in zip(first, last, strict=True))
    return "#" + "".join(f"{value:02x}" for value in mixed)


def _read(name: str) -> str:
    return (files("stopwise.service.dashboard") / "static" / name).read_text("utf-8")


def _assets() -> dict[str, Asset]:
    found = (
        Asset("dashboard.css", "text/css", (STYLE + _read("dashboard.css") + shades()).encode()),
        Asset("dashboard.js", "text/javascript", _read("dashboard.js").encode()),
        Asset("icon.svg", "image/svg+xml", _read("icon.svg").encode()),
    )
    return {asset.name: asset for asset in found}


ASSETS = _assets()
