"""A Spark standalone cluster on this machine, out of what pip's PySpark holds."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType

from ackwise.spark import home, java

PATIENCE = 120.0


class Daemon:
    """One Java process of the cluster; what it says goes to a file."""

    def __init__(self, name: str, folder: Path, main: str, *arguments: str) -> None:
        self.name, self.log = name, folder / f"{name}.log"
        spark = home.home(sys.executable, local=True)
        environment = {
            **os.environ,
            "SPARK_HOME": str(spark),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_DAEMON_MEMORY": "256m",
            "JAVA_HOME": str(java.home(java.find())),
        }
        with self.log.open("w") as log:
            # spark-class becomes Java, so its process id is Java's. Ctrl-C is for us and not for it.
            self.process = subprocess.Popen(
                [str(spark / "bin" / "spark-class"), f"org.apache.spark.deploy.{main}", *arguments],
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def said(self, pattern: str) -> str:
        """The first group of what it will have said soon."""
        end = time.monotonic() + PATIENCE
        while (found := re.search(pattern, self.log.read_text())) is None:
            if self.process.poll() is not None or time.monotonic() > end:
                raise RuntimeError(f"the {self.name} did not start:\n{self.log.read_text()[-2000:]}")
            time.sleep(0.05)
        return found[1]

    def kill(self) -> None:
        """As if the machine had lost its power."""
        self.process.kill()
        self.process.wait()

    def end(self) -> None:
        self.process.terminate()
        try:
            self.process.wait(timeout=30)
        except subprocess.TimeoutExpired:
            self.kill()


class Cluster:
    """Inside `with Cluster(folder) as cluster:` its master is at `cluster.url`; afterwards nothing of it is left.

    Logs and the workers' files are in `folder`.
    """

    def __init__(self, folder: Path, *, workers: int = 2, cores: int = 1, memory: str = "1g") -> None:
        self._folder, self._count, self._cores, self._memory = folder, workers, cores, memory
        self.workers: list[Daemon] = []
        self._daemons: list[Daemon] = []
        self.url = ""

    def __enter__(self) -> Cluster:
        try:
            master = self._start("master", "master.Master", "--host", "127.0.0.1", "--port", "0", "--webui-port", "0")
            self.url = master.said(r"Starting Spark master at (spark://\S+)")
            for _ in range(self._count):
                self.add_worker(wait=False)
            for worker in self.workers:
                self._joined(worker)
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def add_worker(self, *, wait: bool = True) -> Daemon:
        name = f"worker-{len(self.workers) + 1}"
        size = ("--cores", str(self._cores), "--memory", self._memory)
        place = ("--host", "127.0.0.1", "--webui-port", "0", "--work-dir", str(self._folder / name))
        worker = self._start(name, "worker.Worker", *place, *size, self.url)
        self.workers.append(worker)
        if wait:
            self._joined(worker)
        return worker

    def stop(self) -> None:
        """Workers first: they end the executors that they started."""
        for daemon in reversed(self._daemons):
            daemon.end()
        self._daemons.clear()

    def _joined(self, worker: Daemon) -> None:
        worker.said(r"Successfully registered with master (\S+)")

    def _start(self, name: str, main: str, *arguments: str) -> Daemon:
        daemon = Daemon(name, self._folder, main, *arguments)
        self._daemons.append(daemon)
        return daemon
