"""Settings of Sphinx, which builds the site from the pages that ``build.py`` has written."""

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
myst_heading_anchors = 4  # the anchors that code hosts give headings
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
    "misc.highlighting_failure",  # requests and answers of the service, shortened with "…"
    "ref.python",  # an attribute's name in a docstring, which several classes have
]


def setup(app: Any) -> None:
    """Let signatures read as the source does: ``ArrayLike``, not all that this stands for."""
    app.connect("autodoc-process-signature", signature)


def signature(app: Any, what: str, name: str, value: Any, *_: Any) -> tuple[str, str] | None:
    """Return the arguments and the result of a function, method or class as they are written."""
    function = value.__init__ if inspect.isclass(value) else inspect.unwrap(value)
    if not inspect.isfunction(function) or not function.__module__.startswith("stopwise"):
        return None
    try:
        written = ast.parse(textwrap.dedent(inspect.getsource(function))).body[0]
    except OSError:
        return None  # that of a dataclass
    if not isinstance(written, ast.FunctionDef | ast.AsyncFunctionDef):
        return None
    for node in ast.walk(written):  # 'str | None', written in quotes, is the same type without
        if isinstance(node, ast.arg) and isinstance(node.annotation, ast.Constant):
            node.annotation = ast.parse(str(node.annotation.value), mode="eval").body
    arguments = written.args
    first = [*arguments.posonlyargs, *arguments.args][:1]
    if first and first[0].arg in ("self", "cls"):
        (arguments.posonlyargs or arguments.args).pop(0)
    returns = ast.unparse(written.returns) if written.returns and what != "class" else ""
    return f"({ast.unparse(arguments)})", returns
