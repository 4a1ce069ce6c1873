"""`{api} MODULE`: the entry of each name in the list, from its signature and docstring, whatever kind it is of."""

import importlib
import inspect
from types import ModuleType
from typing import Any

from docutils import nodes
from docutils.statemachine import StringList
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from docstrings import rewrite, shown


def described(what: str, name: str, value: Any, signature: str = "") -> list[str]:
    """An entry written out: for a name that stands for an object, or for a class under another name."""
    lines = (inspect.getdoc(value if inspect.isclass(value) else type(value)) or "").splitlines()
    rewrite(None, what, name, value, None, lines)  # type: ignore[arg-type]
    module, short = name.rsplit(".", 1)
    head = [f".. py:{what}:: {short}{signature}", f"   :module: {module}", ""]
    return [*head, *(f"   {line}" for line in lines), ""]


def entry(module: ModuleType, name: str) -> list[str]:
    value, full = getattr(module, name), f"{module.__name__}.{name}"
    if inspect.isclass(value) and value.__name__ == name:
        base = ["   :show-inheritance:"] if issubclass(value, Exception) else []
        return [f".. autoclass:: {full}", "   :members:", *base, ""]
    if inspect.isclass(value):
        fields = inspect.signature(value).parameters.values()
        plain = ", ".join(p.name if p.default is p.empty else f"{p.name}={shown(p.default)}" for p in fields)
        return described("function", full, value, f"({plain})")
    if inspect.isfunction(value):
        return [f".. autofunction:: {full}", ""]
    if isinstance(value, dict):
        rows = [f"   - ``{key}``: {getattr(row, 'summary', '')}" for key, row in value.items()]
        return [f".. py:data:: {name}", f"   :module: {module.__name__}", "", *rows, ""]
    return described("data", full, value)


class Api(SphinxDirective):
    has_content = True
    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        module = importlib.import_module(self.arguments[0])
        lines = ["````{eval-rst}"]
        for name in filter(None, (line.strip() for line in self.content)):
            lines += entry(module, name)
        holder = nodes.container()
        self.state.nested_parse(StringList([*lines, "````"], self.env.docname), self.content_offset, holder)
        return holder.children


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_directive("api", Api)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
