"""Files for browsers, extracted from wheels."""

from __future__ import annotations

import re
import tomllib
import zipfile
from pathlib import Path

import pytest

from ackwise.dashboard import static_files
from ackwise.server import docs_pages
from tools import make_venv

SWAGGER = make_venv.SWAGGER_UI
FOLDER = "sidecar/static/sidecar/swagger-ui-dist"


def wheel(tmp_path: Path, *names: str) -> Path:
    file = tmp_path / "sidecar-1-py3-none-any.whl"
    with zipfile.ZipFile(file, "w") as archive:
        for name in names:
            archive.writestr(name, f"content of {name}")
    return file


def test_swagger_files_are_extracted_with_licences(tmp_path: Path) -> None:
    names = [f"{FOLDER}/{name}" for name in ("swagger-ui-bundle.js", "swagger-ui.css", "LICENSE", "swagger-ui.css.map")]
    made = wheel(tmp_path, *names, "sidecar-1.dist-info/licenses/LICENSE", "sidecar/static/sidecar/redoc/LICENSE")
    target = tmp_path / "swagger_ui"
    target.mkdir()
    (target / "old.js").write_text("of an earlier version")
    make_venv.extract(made, SWAGGER._replace(target=target))
    assert sorted(file.name for file in target.iterdir()) == sorted(SWAGGER.files.values())
    assert (target / "LICENSE-swagger-ui.txt").read_text() == f"content of {FOLDER}/LICENSE"


def test_wheel_without_a_file_changes_nothing(tmp_path: Path) -> None:
    target = tmp_path / "swagger_ui"
    target.mkdir()
    (target / "old.js").touch()
    with pytest.raises(SystemExit, match=r"swagger-ui-bundle\.js"):
        make_venv.extract(wheel(tmp_path, f"{FOLDER}/swagger-ui.css"), SWAGGER._replace(target=target))
    assert (target / "old.js").exists()


def test_htmx_files_are_extracted_with_their_licence(tmp_path: Path) -> None:
    folder = "django_htmx/static/django_htmx"
    names = [
        f"{folder}/htmx-2.min.js",
        f"{folder}/htmx-2.js",
        f"{folder}/ext/hx-sse-2.min.js",
        f"{folder}/htmx-4.min.js",
    ]
    made = wheel(tmp_path, *names, "django_htmx-1.dist-info/licenses/LICENSE")
    target = tmp_path / "htmx"
    make_venv.extract(made, make_venv.HTMX._replace(target=target))
    assert sorted(file.name for file in target.iterdir()) == sorted(make_venv.HTMX.files.values())
    assert (target / "htmx-2.min.js").read_text() == f"content of {folder}/htmx-2.min.js"


def test_files_go_where_the_server_looks() -> None:
    for wanted, folder, files in (
        (SWAGGER, docs_pages.SWAGGER_UI, docs_pages.FILES),
        (make_venv.HTMX, static_files.HTMX, static_files.FILES),
    ):
        assert wanted.target.resolve() == folder.resolve()
        assert {name for name, where in files.items() if where == folder} <= set(wanted.files.values())


@pytest.mark.parametrize("wanted", make_venv.BROWSER_FILES, ids=lambda wanted: wanted.lock.stem)
def test_wheel_of_browser_files_is_pinned_by_its_hash(wanted: make_venv.BrowserFiles) -> None:
    assert re.search(r"^[a-z-]+==[\d.]+ \\\n +--hash=sha256:[0-9a-f]{64}$", wanted.lock.read_text(), re.M)


@pytest.mark.parametrize("wanted", make_venv.BROWSER_FILES, ids=lambda wanted: wanted.lock.stem)
def test_browser_files_are_ignored_by_git_and_packed(wanted: make_venv.BrowserFiles) -> None:
    path = wanted.target.relative_to(make_venv.ROOT).as_posix()
    assert f"/{path}/" in (make_venv.ROOT / ".gitignore").read_text().splitlines()
    hatch = tomllib.loads((make_venv.ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]
    assert all(f"{path}/*" in hatch[kind]["artifacts"] for kind in ("wheel", "sdist"))
    notice = (make_venv.ROOT / "NOTICE").read_text()
    assert f"{path}/" in notice
    licences = [name for name in wanted.files.values() if name.startswith("LICENSE")]
    assert all(name in notice for name in licences)
