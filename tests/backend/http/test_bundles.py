"""Tests of the bundles that join the modules of the pages into a few files."""

import json
import subprocess

import pytest

from backend.http.bundles import FRAME_STYLES, BundleError, Bundles
from tests.servers import find_node

MODULES = {
    "vendor/library.js": "export default 40; export const one = 1;",
    "src/state.js": "export const seen = [];\nexport async function* numbers() {}\nexport class Box {}\n",
    "src/door.js": """import forty, { one as first } from '../vendor/library.js';
import {
  Box,
  seen,
} from './state.js';

export { numbers } from './state.js';
const text = `
export KEY=value
import os
`;
export { Box, text };
export const sum = forty + first + seen.length;
""",
    "src/main.js": "import { seen } from './state.js';\nseen.push('main');\n",
    "src/views/a.js": "import './../door.js';\nimport { sum, text } from '../door.js';\n"
    "import { seen } from '../state.js';\nexport const View = () => [sum, text.length, seen];\n",
    "src/views/b.js": "import * as door from '../door.js';\nexport const View = () => Object.keys(door);\n",
}


@pytest.fixture
def frontend(tmp_path):
    styles = {f"styles/{name}.css": f"/* {name} */" for name in (*FRAME_STYLES, "a", "b")}
    for path, text in (MODULES | styles).items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    return tmp_path


def test_bundles_behave_like_the_modules_and_share_their_state(frontend):
    bundles = Bundles(frontend, ["a", "b"])
    (frontend / "bundles").mkdir()
    for name in ("app.js", "a.js", "b.js"):
        (frontend / "bundles" / name).write_text(bundles.file(name))
    (frontend / "package.json").write_text('{"type": "module"}')
    script = """const views = [await import('./bundles/a.js'), await import('./bundles/b.js')];
                console.log(JSON.stringify(views.map(({ View }) => View())));"""
    output = subprocess.check_output(
        [find_node(), "--input-type=module", "-e", script], cwd=frontend, text=True
    )
    assert json.loads(output) == [[41, 28, ["main"]], ["sum", "numbers", "Box", "text"]]
    assert bundles.file("pages.css").split() == [
        token for name in (*FRAME_STYLES, "a", "b") for token in ("/*", name, "*/")
    ]
    assert bundles.file("../styles/base.css") is bundles.file("c.js") is None


@pytest.mark.parametrize(
    ("path", "text", "message"),
    [
        (
            "src/state.js",
            "export let count = 0;\n",
            "src/state.js: no bundle can hold 'export let count = 0;'",
        ),
        (
            "src/state.js",
            "const count = 0;\nexport { count as seen };\n",
            "src/state.js: no bundle can rename",
        ),
        ("src/state.js", "import { sum } from './door.js';\n", "src/door.js imports itself"),
    ],
)
def test_an_unsupported_construct_is_an_error_that_names_its_module(frontend, path, text, message):
    (frontend / path).write_text(text)
    with pytest.raises(BundleError, match=message):
        Bundles(frontend, ["a", "b"]).file("app.js")
