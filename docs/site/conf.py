"""Sphinx settings of the site."""

import ast
import inspect
import textwrap
from typing import Any

from stopwise import __version__

project = "Stopwise"
author = "The authors of Stopwise"
release = version = __version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
smartquotes = False
source_suffix = {".md": "markdown"}
myst_heading_anchors = 4  # the same anchors as on code hosts
myst_links_external_new_tab = False
myst_linkify_fuzzy_links = False

default_role = "py:obj"  # `USSPD` in a docstring
napoleon_google_docstring = False
napoleon_use_rtype = False
napoleon_use_ivar = True
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
autodoc_preserve_defaults = True
python_maximum_signature_line_length = 72
python_use_unqualified_type_names = True
add_module_names = False
toc_object_entries_show_parents = "hide"

html_theme = "furo"
html_title = "Stopwise"
html_theme_options = {"top_of_page_buttons": []}
html_static_path = ["static"]
html_css_files = ["stopwise.css"]
html_copy_source = True  # llms.txt lists the Markdown
html_show_sphinx = False
html_show_copyright = False
html_domain_indices = False
html_last_updated_fmt = None
pygments_style = "a11y-high-contrast-light"
pygments_dark_style = "a11y-high-contrast-dark"
suppress_warnings = [
    "misc.highlighting_failure",  # JSON shortened with "…"
    "ref.python",  # attribute names that several classes share
]


def setup(app: Any) -> None:
    """Show type aliases such as ``ArrayLike`` in signatures, instead of their expansion."""
    app.connect("autodoc-process-signature", signature)


def signature(app: Any, what: str, name: str, value: Any, *_: Any) -> tuple[str, str] | None:
    """Return the arguments and the result type as written in the source."""
    function = value.__init__ if inspect.isclass(value) else inspect.unwrap(value)
    if not inspect.isfunction(function) or not function.__module__.startswith("stopwise"):
        return None
    try:
        definition = ast.parse(textwrap.dedent(inspect.getsource(function))).body[0]
    except OSError:
        return None  # generated, as for dataclasses
    if not isinstance(definition, ast.FunctionDef | ast.AsyncFunctionDef):
        return None
    for node in ast.walk(definition):  # unquote annotations
        if isinstance(node, ast.arg) and isinstance(node.annotation, ast.Constant):
            node.annotation = ast.parse(str(node.annotation.value), mode="eval").body
    arguments = definition.args
    first = [*arguments.posonlyargs, *arguments.args][:1]
    if first and first[0].arg in ("self", "cls"):
        (arguments.posonlyargs or arguments.args).pop(0)
    returns = ast.unparse(definition.returns) if definition.returns and what != "class" else ""
    return f"({ast.unparse(arguments)})", returns
