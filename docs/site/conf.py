"""Sphinx's settings of the documentation site. `scripts/docs.py` lays out its pages and builds it (`make site`)."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
import hooks

project = "timescales"
author = "The timescales authors"
extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx_design",
    "sphinx_copybutton",
]
source_suffix = {".md": "markdown"}
default_role = "py:obj"  # a name between backticks is a link where there is such a thing
suppress_warnings = ["ref.python"]  # a name of several things, such as `State`

# The pages are written for GitHub as well: its equations, its names of headings.
myst_enable_extensions = ["dollarmath", "colon_fence", "attrs_block"]
myst_fence_as_directive = ["math"]
myst_heading_anchors = 4
myst_dmath_allow_space = False

autodoc_default_options = {"members": True, "undoc-members": True, "show-inheritance": True, "member-order": "bysource"}
autodoc_default_options["ignore-module-all"] = True  # a package does not repeat what its modules define
autodoc_typehints_format = "short"
autodoc_use_type_comments = False  # there are none; looking for them takes seconds
autodoc_inherit_docstrings = False  # torch's would come with its classes
python_maximum_signature_line_length = 90
toc_object_entries_show_parents = "hide"

exclude_patterns = ["_doctrees"]

html_theme = "pydata_sphinx_theme"
html_title = "timescales"
html_math_renderer = "mathml"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_sourcelink = False
html_use_index = False
html_domain_indices = False
html_sidebars = {page: [] for page in ("index", "docs/atlas", "docs/gates")}  # no pages are below these
html_theme_options = {
    "logo": {"text": "timescales"},
    "header_links_before_dropdown": 12,
    "navbar_align": "left",
    # A site of runs (`make gallery`) has no parts: its first page lists them.
    "navbar_center": ["navbar-nav"] if (Path(__file__).parent / "docs").is_dir() else [],
    "navbar_end": ["theme-switcher"],
    "secondary_sidebar_items": ["page-toc"],
    "show_nav_level": 1,
    "show_toc_level": 1,
    "footer_start": ["copyright"],
    "footer_end": ["theme-version"],
    "back_to_top_button": False,
}
copyright = "The timescales authors, MIT licence"

setup = hooks.setup
