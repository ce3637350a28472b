"""TabICL's network classes, without the rest of its package.

``import tabicl`` brings scikit-learn, pandas and scipy along, which a worker doesn't need: half of its start-up time and a hundred
megabytes. So the package's folder is entered by a stand-in that is gone again once the network's modules are loaded. numba, where it is
installed, is kept out likewise: upstream would use it for a way of ordering quantiles that no checkpoint asks for.
"""

from __future__ import annotations

import importlib.util
import sys
from types import ModuleType

_package = None
if "tabicl" not in sys.modules:
    _spec = importlib.util.find_spec("tabicl")
    if _spec is None or _spec.submodule_search_locations is None:
        raise ModuleNotFoundError("tabicl is not installed")
    _package = ModuleType("tabicl")
    _package.__path__ = list(_spec.submodule_search_locations)
    sys.modules["tabicl"] = _package
_numba = sys.modules.get("numba")
if _numba is None:
    sys.modules["numba"] = None  # type: ignore[assignment]
try:
    from tabicl._model.layers import MultiheadAttentionBlock
    from tabicl._model.tabicl import TabICL
finally:
    if _numba is None:
        del sys.modules["numba"]
    if _package is not None and sys.modules.get("tabicl") is _package:
        del sys.modules["tabicl"]

__all__ = ["MultiheadAttentionBlock", "TabICL"]
