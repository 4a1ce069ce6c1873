"""How the site is built: `make docs`. Nothing in it is fetched by the reader's browser."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "_ext"))

from slabnet.core.version import __version__

project = "slabnet"
author = "the slabnet authors"
project_copyright = "the slabnet authors, MIT licence"
release = version = __version__

extensions = ["sphinx.ext.autodoc", "myst_parser", "docstrings", "api", "formulas", "commands", "offline"]
myst_enable_extensions = ["dollarmath", "deflist"]
myst_heading_anchors = 3
exclude_patterns = ["_build", "_ext"]
default_role = "code"
smartquotes = False  # "auto" in a docstring is something to type

autodoc_inherit_docstrings = False
autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
autodoc_class_signature = "mixed"
python_use_unqualified_type_names = True
python_maximum_signature_line_length = 88
add_module_names = False
toc_object_entries_show_parents = "hide"

html_theme = "furo"
html_title = "slabnet"
html_math_renderer = "outlines"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_show_sphinx = False
html_copy_source = False
pygments_style = "friendly"
pygments_dark_style = "github-dark"
html_theme_options = {
    "footer_icons": [],
    "light_css_variables": {"color-brand-primary": "#1d5fa7", "color-brand-content": "#1d5fa7"},
    "dark_css_variables": {"color-brand-primary": "#8ab8f0", "color-brand-content": "#8ab8f0"},
}
