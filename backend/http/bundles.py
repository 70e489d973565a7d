"""Bundles of the scripts and styles of the pages, so that a browser loads a few files instead of 200.

A bundle contains each module as a function that is called once, in import order. `app.js` contains the frame
and the modules that several views share, and `<view>.js` the other modules of a view. Libraries in `vendor`
stay separate files. Statements are recognised by the start of a line, as formatted by Biome; other statements
raise BundleError.
"""

import os
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import lru_cache
from pathlib import Path

from backend.http.pages import PAGES

APP = "app"
STYLES = "pages.css"
FRAME_STYLES = ("base", "components", "charts", "rollouts")

IMPORT_PATTERN = re.compile(r"^import\s+(?:(?P<names>[^;']+?)\s+from\s+)?'(?P<path>\.[^']+)';", re.MULTILINE)
REEXPORT_PATTERN = re.compile(r"^export\s+\{(?P<names>[^}]*)\}\s+from\s+'(?P<path>\.[^']+)';", re.MULTILINE)
EXPORT_LIST_PATTERN = re.compile(r"^export\s+\{(?P<names>[^}]*)\};", re.MULTILINE)
EXPORT_PATTERN = re.compile(
    r"^export (?=(?:const|class|(?:async )?function\*?) (?P<name>[\w$]+))", re.MULTILINE
)
LEFT_OVER_PATTERN = re.compile(
    r"^(?:import .*from|import '|export (?:default|let|var|const|class|async|function|\*|\{)).*", re.MULTILINE
)
RENAMED_PATTERN = re.compile(r" as ")
LAZY_IMPORT_PATTERN = re.compile(r"\bimport\('(?P<path>\.[^']+/vendor/[^']+)'\)")


class BundleError(Exception):
    """A module that cannot be bundled; the message contains its path."""


class Module:
    """A module of the frontend with its source text."""

    def __init__(self, frontend: Path, path: str) -> None:
        self.path = path
        """Path relative to the frontend, with slashes."""
        self.is_library = path.startswith("vendor/")
        self.text = "" if self.is_library else (frontend / path).read_text(encoding="utf-8")
        self.imports = [self._absolute_path(match["path"]) for match in IMPORT_PATTERN.finditer(self.text)]
        self.imports += [self._absolute_path(match["path"]) for match in REEXPORT_PATTERN.finditer(self.text)]

    def as_function(self) -> str:
        """Return the statement that runs the module and stores its exports; raise BundleError."""
        exports: list[str] = [match["name"] for match in EXPORT_PATTERN.finditer(self.text)]
        body = REEXPORT_PATTERN.sub(lambda match: self._rewrite_reexport(match, exports), self.text)
        body = EXPORT_LIST_PATTERN.sub(lambda match: self._collect_exports(match, exports), body)
        body = IMPORT_PATTERN.sub(self._rewrite_import, EXPORT_PATTERN.sub("", body))
        body = LAZY_IMPORT_PATTERN.sub(
            lambda match: f"import('../{self._absolute_path(match['path'])}')", body
        )
        if unsupported_syntax := LEFT_OVER_PATTERN.search(body):
            raise BundleError(f"{self.path}: no bundle can hold {unsupported_syntax[0]!r}")
        if renamed_export := next((name for name in exports if " as " in name), None):
            raise BundleError(f"{self.path}: no bundle can rename an export: {renamed_export}")
        return f"modules['{self.path}'] = (() => {{\n{body}\nreturn {{ {', '.join(exports)} }};\n}})();\n"

    def _absolute_path(self, relative: str) -> str:
        return os.path.normpath(Path(self.path).parent / relative)

    def _rewrite_import(self, match: re.Match[str]) -> str:
        source = f"modules['{self._absolute_path(match['path'])}']"
        names = match["names"]
        if names is None:
            return ""
        if names.startswith("* as "):
            return f"const {names.removeprefix('* as ')} = {source};"
        default, brace, named_imports = names.partition("{")
        default = f"default: {default.strip(' ,')}, " if default.strip() else ""
        named_imports = RENAMED_PATTERN.sub(": ", named_imports) if brace else " }"
        return f"const {{ {default}{named_imports} = {source};"

    def _rewrite_reexport(self, match: re.Match[str], exports: list[str]) -> str:
        names = [name.strip() for name in match["names"].split(",") if name.strip()]
        exports += names
        return f"const {{ {', '.join(names)} }} = modules['{self._absolute_path(match['path'])}'];"

    @staticmethod
    def _collect_exports(match: re.Match[str], exports: list[str]) -> str:
        exports += [name.strip() for name in match["names"].split(",") if name.strip()]
        return ""


class Bundles:
    """All bundles for one state of the frontend's files."""

    def __init__(self, frontend: Path, views: Sequence[str]) -> None:
        self._frontend = frontend
        self._modules: dict[str, Module] = {}
        paths_by_view = {view: self._closure([f"src/views/{view}.js"]) for view in views}
        use_counts = Counter(path for paths in paths_by_view.values() for path in paths)
        shared_paths = [path for path, count in use_counts.items() if count > 1]
        self._app = self._closure([*shared_paths, "src/main.js"])
        self._views = {
            view: [path for path in paths if path not in set(self._app)]
            for view, paths in paths_by_view.items()
        }

    def file(self, name: str) -> str | None:
        """Return the content of a bundle by its file name; None if it does not exist."""
        if name == STYLES:
            return self._styles()
        if name == f"{APP}.js":
            return self._app_script()
        name = name.removesuffix(".js")
        if (paths := self._views.get(name)) is None:
            return None
        view_export = f"export const {{ View }} = modules['src/views/{name}.js'];\n"
        return f"import {{ modules }} from './{APP}.js';\n{self._functions(paths)}{view_export}"

    @property
    def libraries(self) -> list[str]:
        """Paths of the libraries that the bundles import."""
        return [path for path in self._modules if path.startswith("vendor/")]

    def _styles(self) -> str:
        """Return the styles of the frame and of all views."""
        files = [self._frontend / "styles" / f"{name}.css" for name in (*FRAME_STYLES, *self._views)]
        return "\n".join(file.read_text(encoding="utf-8") for file in files)

    def _app_script(self) -> str:
        imports = [f"import * as library{i} from '../{path}';\n" for i, path in enumerate(self.libraries)]
        entries = [f"'{path}': library{i}" for i, path in enumerate(self.libraries)]
        modules = f"export const modules = {{ {', '.join(entries)} }};\n"
        return "".join((*imports, modules, self._functions(self._app)))

    def _functions(self, paths: Iterable[str]) -> str:
        return "".join(self._modules[path].as_function() for path in paths)

    def _closure(self, paths: Iterable[str]) -> list[str]:
        """Return these modules and their imports in import order, without libraries."""
        ordered_paths: dict[str, None] = {}
        for path in paths:
            self._add(path, ordered_paths, ())
        return list(ordered_paths)

    def _add(self, path: str, ordered_paths: dict[str, None], importers: tuple[str, ...]) -> None:
        if path in ordered_paths:
            return
        if path in importers:
            raise BundleError(f"{path} imports itself, by {', '.join(importers)}")
        if path not in self._modules:
            self._modules[path] = Module(self._frontend, path)
        for imported_path in self._modules[path].imports:
            self._add(imported_path, ordered_paths, (*importers, path))
        if not self._modules[path].is_library:
            ordered_paths[path] = None


@lru_cache(maxsize=1)
def bundles(frontend: Path, _edition: str) -> Bundles:
    """Return the bundles of an edition of the files."""
    return Bundles(frontend, [page.name for page in PAGES])
