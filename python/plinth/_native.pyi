# The types of _native for type checkers. Functions of the C API are Any: PROTOTYPES in _bindings has their types.

from typing import Any, Callable, Optional

lib: Any
library_path: str

def check(status: int) -> None: ...
def wait(query: Optional[Callable[[], bool]], block: Callable[[], Any]) -> Any: ...
def __getattr__(name: str) -> Any: ...
