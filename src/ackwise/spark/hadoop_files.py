"""Small files on any Hadoop file system."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any
from uuid import uuid4

from pyspark.sql import SparkSession


class HadoopFolder:
    """Folder by path or URL. Names in its methods are relative to it."""

    def __init__(self, spark: SparkSession, path: str) -> None:
        jvm: Any = spark._jvm
        self._hadoop = jvm.org.apache.hadoop.fs
        self._conf: Any = spark._jsc.hadoopConfiguration()
        usual = self._hadoop.FileSystem.getDefaultUri(self._conf).getScheme()
        if "://" not in path and usual == "file":
            # The current folder of the Java process may differ from Python's.
            path = f"file://{Path(path).absolute()}"
        root = self._hadoop.Path(path)
        self._files = root.getFileSystem(self._conf)
        self.url = str(self._files.makeQualified(root).toString())
        self._local = Path(str(root.toUri().getPath())) if self._files.getScheme() == "file" else None

    def _path(self, name: str) -> Any:
        return self._hadoop.Path(f"{self.url}/{name}" if name else self.url)

    def exists(self, name: str = "") -> bool:
        return bool(self._files.exists(self._path(name)))

    def names(self, name: str = "") -> list[str]:
        """Names of the entries of a folder. Empty if the folder does not exist."""
        if not self.exists(name):
            return []
        return sorted(str(status.getPath().getName()) for status in self._files.listStatus(self._path(name)))

    def tree(self, name: str) -> list[str]:
        """Paths of all files below a folder, relative to it, without files that Spark hides."""
        paths: list[str] = []
        for status in self._files.listStatus(self._path(name)) if self.exists(name) else ():
            inner = str(status.getPath().getName())
            if inner.startswith(("_", ".")):
                continue
            if status.isDirectory():
                paths += [f"{inner}/{rest}" for rest in self.tree(f"{name}/{inner}")]
            else:
                paths.append(inner)
        return paths

    def text(self, name: str) -> str:
        stream = self._files.open(self._path(name))
        try:
            return bytes(stream.readAllBytes()).decode()
        finally:
            stream.close()

    def create(self, name: str, text: str) -> bool:
        """Create a file atomically. Returns False if the file exists."""
        parent, slash, _ = name.rpartition("/")
        draft = f"{parent}{slash}.{uuid4().hex}.tmp"
        stream = self._files.create(self._path(draft))
        try:
            stream.write(text.encode())
        finally:
            stream.close()
        self.keep([draft])
        made = self._link(draft, name) if self._local is not None else self._rename_new(draft, name)
        self._files.delete(self._path(draft), False)
        return made

    def _link(self, draft: str, name: str) -> bool:
        """Link the draft under its name. A rename would replace an existing file silently."""
        assert self._local is not None
        try:
            os.link(self._local / draft, self._local / name)
        except FileExistsError:
            return False
        _sync((self._local / name).parent)
        return True

    def _rename_new(self, draft: str, name: str) -> bool:
        return not self.exists(name) and bool(self._files.rename(self._path(draft), self._path(name)))

    def move(self, source: str, target: str) -> None:
        """Move a file. If the target exists, an earlier call has moved it, and the source is deleted."""
        if self.exists(target):
            self._files.delete(self._path(source), False)
            return
        self._files.mkdirs(self._path(target).getParent())
        if not self._files.rename(self._path(source), self._path(target)):
            raise OSError(f"{source} cannot be moved to {target} in {self.url}")

    def remove(self, name: str) -> None:
        self._files.delete(self._path(name), True)

    def keep(self, names: list[str]) -> None:
        """Sync local files to disk. Other file systems do it themselves."""
        if self._local is not None:
            for name in names:
                _sync(self._local / name)
                _sync((self._local / name).parent)


def _sync(path: Path) -> None:
    number = os.open(path, os.O_RDONLY)
    try:
        os.fsync(number)
    finally:
        os.close(number)
