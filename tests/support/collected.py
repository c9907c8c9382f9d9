"""Which tests a file has, without importing it."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path


@cache
def named_tests(file: Path) -> frozenset[str]:
    """``test_x`` and ``TestX::test_y`` of a test file; none where there is no such file."""
    if not file.is_file():
        return frozenset()
    found = set()
    for node in ast.parse(file.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
            found.add(node.name)
        elif isinstance(node, ast.ClassDef) and node.name.startswith("Test"):
            methods = [part.name for part in node.body if isinstance(part, ast.FunctionDef)]
            found |= {f"{node.name}::{name}" for name in methods if name.startswith("test_")}
    return frozenset(found)
