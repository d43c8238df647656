"""Generate the pages of the API reference."""

import inspect
from types import ModuleType

import stopwise
from stopwise import errors, research

# By package: the title of the page, and its introduction.
GROUPS = {
    "stopwise.cascade": ("The cascade", "The arms of a cascade and their costs."),
    "stopwise.policies": (
        "Policies",
        "Policies decide when to stop and learn from the outputs of each round.",
    ),
    "stopwise.features": (
        "Features",
        "Feature maps turn a context into the inputs of the disagreement models.",
    ),
    "stopwise.running": (
        "Running stages",
        "Functions and models as the arms of a cascade.",
    ),
    "stopwise.records": (
        "Records",
        "Inputs and results of policies: rounds, decisions, evidence and labels.",
    ),
    "stopwise.logs": ("Logs", "Read and write logs, diagnose a cascade and replay policies."),
    "stopwise.client": (
        "Service client",
        "Cascades and rounds over HTTP.",
    ),
    "stopwise.errors": ("Exceptions and warnings", "Exceptions and warnings that Stopwise raises."),
    "stopwise.research": ("Research", "Environments, comparators, experiments and theory."),
}
# Groups whose classes are documented together with inherited methods.
INHERIT = {"stopwise.logs", "stopwise.client", "stopwise.running", "stopwise.records"}


def names_by_package() -> dict[str, list[str]]:
    """Return the public names by package; all of research is one group."""
    groups: dict[str, list[str]] = {group: [] for group in GROUPS}
    for name, module in public_names(stopwise).items():
        if not module.startswith("stopwise.research."):
            groups[".".join(module.split(".")[:2])].append(name)
    groups["stopwise.errors"] = [name for name in vars(errors) if not name.startswith("_")]
    groups["stopwise.research"] = [*public_names(research)]
    return {group: sorted(names, key=str.lower) for group, names in groups.items()}


def public_names(package: ModuleType) -> dict[str, str]:
    """Return the module of each name that a package loads lazily."""
    return package._MODULES  # pyright: ignore[reportPrivateUsage] (the only list of the names)


def directive(module: ModuleType, name: str, group: str) -> str:
    """Return the Sphinx directive that documents a name."""
    value = getattr(module, name)
    if inspect.isclass(value):
        options = ["   :members:", "   :show-inheritance:"]
        if group in INHERIT:
            options.append("   :inherited-members: Exception, Struct")
        if issubclass(value, Exception):
            options = ["   :show-inheritance:"]
        return "\n".join([f".. autoclass:: {name}", *options])
    if callable(value):
        return f".. autofunction:: {name}"
    entries = "\n".join(f"   - ``{key!r}``: `{kind.__name__}`" for key, kind in value.items())
    return f".. data:: {name}\n   :type: dict\n\n   Classes by name:\n\n{entries}"


def pages() -> dict[str, str]:
    """Return the text of each page by its path on the site."""
    pages: dict[str, str] = {}
    for group, names in names_by_package().items():
        title, introduction = GROUPS[group]
        module = {"stopwise.errors": errors, "stopwise.research": research}.get(group, stopwise)
        blocks = [f".. currentmodule:: {module.__name__}"]
        blocks += [" · ".join(f":py:obj:`{name}`" for name in names)]
        blocks += [directive(module, name, group) for name in names]
        directives = "```{eval-rst}\n" + "\n\n".join(blocks) + "\n```"
        place = f"reference/{group.removeprefix('stopwise.')}.md"
        pages[place] = f"# {title}\n\n{introduction}\n\n{directives}\n"
    return pages
