"""The pages of the API: every public name of ``stopwise`` and its exceptions, by package."""

import inspect
from types import ModuleType

import stopwise

# The first part of a module's name: the page of its names, and what the page says first.
GROUPS = {
    "cascade": ("The cascade", "Arms in order, and what each costs."),
    "policies": ("Policies", "They decide how deep to go, and learn from the round."),
    "features": ("Features", "What a policy sees of a context."),
    "running": ("Running stages", "Your own functions and models as the arms of a cascade."),
    "records": ("Records", "What is given to policies and what they give back."),
    "logs": ("Logs", "Reading and writing logs, diagnosis and replay."),
    "client": ("The client of the service", "A service's cascades and rounds, from Python."),
    "environments": ("Environments", "Cascades whose truth is known."),
    "experiments": ("Simulation", "Policies that play in environments."),
    "errors": ("Exceptions and warnings", "All that is raised on purpose."),
}
INHERIT = {"logs", "client", "running", "records"}  # elsewhere the base class has the methods


def groups() -> dict[str, list[str]]:
    """Return the public names by the first part of the name of their module."""
    found: dict[str, list[str]] = {group: [] for group in GROUPS}
    homes = stopwise._homes()  # pyright: ignore[reportPrivateUsage] (public names have no other list)
    for name, module in homes.items():
        found.setdefault(module.split(".")[1], []).append(name)
    found["errors"] = [name for name in vars(stopwise.errors) if not name.startswith("_")]
    return {group: sorted(names, key=str.lower) for group, names in found.items() if names}


def directive(module: ModuleType, name: str, group: str) -> str:
    """Return what makes the builder describe one name."""
    value = getattr(module, name)
    if inspect.isclass(value):
        options = ["   :members:", "   :exclude-members: builtin", "   :show-inheritance:"]
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
        title, says = GROUPS.get(group, (group.capitalize(), ""))
        module = stopwise.errors if group == "errors" else stopwise
        blocks = [f".. currentmodule:: {module.__name__}"]
        blocks += [" · ".join(f":py:obj:`{name}`" for name in names)]
        blocks += [directive(module, name, group) for name in names]
        described = "```{eval-rst}\n" + "\n\n".join(blocks) + "\n```"
        found[f"reference/{group}.md"] = f"# {title}\n\n{says}\n\n{described}\n"
    return found
