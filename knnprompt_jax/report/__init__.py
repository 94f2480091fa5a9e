"""Records → tables beside the paper's, figures, and one page that holds them all.

    records folder → reading → scores → tables and figures → sections, one an experiment → page

Importing it raises UserError where a library that draws is missing.
"""

import importlib.util

from knnprompt_jax import errors

_LIBRARIES = {"jinja2": "jinja2", "matplotlib": "matplotlib", "sklearn": "scikit-learn"}
if _missing := [name for module, name in _LIBRARIES.items() if importlib.util.find_spec(module) is None]:
    raise errors.UserError(f"the page needs {', '.join(_missing)}: pip install -e '.[report]'")
