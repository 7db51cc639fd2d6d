"""The files of Swagger UI, extracted from a wheel."""

from __future__ import annotations

import re
import zipfile
from pathlib import Path

import pytest

from ackwise.server import docs_pages
from tools import make_venv

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
    make_venv.extract_swagger_ui(made, target)
    assert sorted(file.name for file in target.iterdir()) == sorted(make_venv.SWAGGER_FILES.values())
    assert (target / "LICENSE-swagger-ui.txt").read_text() == f"content of {FOLDER}/LICENSE"


def test_wheel_without_a_file_changes_nothing(tmp_path: Path) -> None:
    target = tmp_path / "swagger_ui"
    target.mkdir()
    (target / "old.js").touch()
    with pytest.raises(SystemExit, match=r"swagger-ui-bundle\.js"):
        make_venv.extract_swagger_ui(wheel(tmp_path, f"{FOLDER}/swagger-ui.css"), target)
    assert (target / "old.js").exists()


def test_swagger_files_go_where_the_server_looks() -> None:
    assert make_venv.SWAGGER_UI.resolve() == docs_pages.SWAGGER_UI.resolve()
    served = {name for name, folder in docs_pages.FILES.items() if folder == docs_pages.SWAGGER_UI}
    assert served <= set(make_venv.SWAGGER_FILES.values())


def test_swagger_wheel_is_pinned_by_its_hash() -> None:
    assert re.search(r"^[a-z-]+==[\d.]+ \\\n +--hash=sha256:[0-9a-f]{64}$", make_venv.SWAGGER_LOCK.read_text(), re.M)
