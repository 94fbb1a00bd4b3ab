"""For scripts of tests that compile nothing: an optimizer of torch imports its compiler, which is
two of the four seconds of CPU that a script takes to start. This stands in for it.
"""

import sys
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec


class Uncompiled(MetaPathFinder, Loader):
    """Finds `torch._dynamo`, whose functions do what the compiler's do outside of a compilation."""

    def find_spec(self, name, path, target=None):
        return ModuleSpec(name, self) if name == "torch._dynamo" else None

    def create_module(self, spec):
        return None

    def exec_module(self, module):
        module.disable = lambda function, *_, **__: function
        module.graph_break = lambda *_: None


sys.meta_path.insert(0, Uncompiled())
