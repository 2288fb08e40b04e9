"""The documentation as a site: Sphinx reads these pages and the docstrings. `make docs` builds it into `site/`."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "_ext"))

import tacit

project = "Tacit"
version = release = tacit.__version__
copyright = "the authors of Tacit, Apache-2.0"
language = "en-GB"
root_doc = "index"
exclude_patterns = ["_*"]
suppress_warnings = ["misc.highlighting_failure"]  # a block in an unknown language is shown as it is
smartquotes_action = "D"  # dashes only: quotes in docstrings are often code

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
extensions += ["contents", "docstrings", "sources"]  # ours, in _ext

# Pages are Markdown, as the repository shows them; a link to a heading is written as there.
myst_heading_anchors = 4
myst_enable_extensions = ["html_image"]

# Docstrings are plain sentences: a word in backticks is code, and Args and Returns are lists.
default_role = "literal"
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
autodoc_preserve_defaults = True
napoleon_numpy_docstring = False
napoleon_use_rtype = False
napoleon_use_ivar = True
napoleon_custom_sections = ["Guarantee"]
python_use_unqualified_type_names = True
python_maximum_signature_line_length = 88
add_module_names = False
toc_object_entries_show_parents = "hide"

html_theme = "furo"
html_title = "Tacit"
html_static_path = ["_static"]
html_css_files = ["house.css"]
html_favicon = "_static/mark.svg"
html_copy_source = False
html_show_search_summary = False  # would be fetched, which a page opened from a disk may not
html_show_copyright = False
html_domain_indices = False
pygments_style = "a11y-high-contrast-light"
pygments_dark_style = "github-dark"
html_theme_options = {
    "light_css_variables": {
        "color-brand-primary": "#0a7a6b",
        "color-brand-content": "#0a7a6b",
        "color-brand-visited": "#0a7a6b",
        "color-background-primary": "#fdfdfb",
        "color-background-secondary": "#f6f6f3",
        "color-foreground-primary": "#1b1f24",
        "color-foreground-muted": "#5c656d",
        "color-background-border": "#dcdfe1",
        "color-api-name": "#0a7a6b",
        "color-api-pre-name": "#5c656d",
    },
    "dark_css_variables": {
        "color-brand-primary": "#4fc3ae",
        "color-brand-content": "#4fc3ae",
        "color-brand-visited": "#4fc3ae",
        "color-background-primary": "#14171a",
        "color-background-secondary": "#1a1e22",
        "color-foreground-primary": "#e9e7e2",
        "color-foreground-muted": "#9aa3ab",
        "color-background-border": "#343a40",
        "color-api-name": "#4fc3ae",
        "color-api-pre-name": "#9aa3ab",
    },
}
