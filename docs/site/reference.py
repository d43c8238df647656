"""The pages of the API: public names of ``stopwise`` and ``stopwise.research``, and exceptions."""

import inspect
from types import ModuleType

import stopwise
from stopwise import errors, research

# The package of a module: the page of its names, and what the page says first.
GROUPS = {
    "stopwise.cascade": ("The cascade", "Arms in order, and what each costs."),
    "stopwise.policies": ("Policies", "They decide how deep to go, and learn from the round."),
    "stopwise.features": ("Features", "What a policy sees of a context."),
    "stopwise.running": (
        "Running stages",
        "Functions and models as the arms of a cascade.",
    ),
    "stopwise.records": ("Records", "What is given to policies and what they give back."),
    "stopwise.logs": ("Logs", "Reading and writing logs, diagnosis and replay."),
    "stopwise.client": (
        "The client of the service",
        "Cascades and rounds of a service.",
    ),
    "stopwise.errors": ("Exceptions and warnings", "All that is raised on purpose."),
    "stopwise.research": ("Research", "Environments, comparators, experiments and theory."),
}
# Elsewhere the base class has the methods.
INHERIT = {"stopwise.logs", "stopwise.client", "stopwise.running", "stopwise.records"}


def groups() -> dict[str, list[str]]:
    """Return the public names by the package of their module; those of research are one group."""
    found: dict[str, list[str]] = {group: [] for group in GROUPS}
    for name, module in public_names(stopwise).items():
        if not module.startswith("stopwise.research."):
            found[".".join(module.split(".")[:2])].append(name)
    found["stopwise.errors"] = [name for name in vars(errors) if not name.startswith("_")]
    found["stopwise.research"] = [*public_names(research)]
    return {group: sorted(names, key=str.lower) for group, names in found.items()}


def public_names(package: ModuleType) -> dict[str, str]:
    """Return the module of each name that a package loads lazily."""
    return package._MODULES  # pyright: ignore[reportPrivateUsage] (names have no other list)


def directive(module: ModuleType, name: str, group: str) -> str:
    """Return what makes the builder describe one name."""
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
    """Return the text of each page by its place on the site."""
    found: dict[str, str] = {}
    for group, names in groups().items():
        title, says = GROUPS[group]
        module = {"stopwise.errors": errors, "stopwise.research": research}.get(group, stopwise)
        blocks = [f".. currentmodule:: {module.__name__}"]
        blocks += [" · ".join(f":py:obj:`{name}`" for name in names)]
        blocks += [directive(module, name, group) for name in names]
        described = "```{eval-rst}\n" + "\n\n".join(blocks) + "\n```"
        place = f"reference/{group.removeprefix('stopwise.')}.md"
        found[place] = f"# {title}\n\n{says}\n\n{described}\n"
    return found
