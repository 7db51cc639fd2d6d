"""`python -m benchmarks.load`: reads one job per line and writes one result per line, until the input ends."""

from __future__ import annotations

import gc
import sys

import msgspec
import uvloop

from benchmarks.load import jobs, running, waiting


async def run(job: jobs.Job) -> jobs.Done:
    match job:
        case jobs.Push(load):
            return await running.push(load)
        case jobs.Drain(load):
            return await running.drain(load)
        case jobs.Beside(load, consumers):
            return await running.beside(load, consumers)
        case jobs.Acks(load, leased):
            return await running.acks(load, leased)
        case jobs.Idle():
            return await waiting.idle(job)


def main() -> None:
    # A garbage collection would slow down the current measurement.
    gc.disable()
    decoder = msgspec.json.Decoder(jobs.Job)
    for line in sys.stdin.buffer:
        try:
            done = uvloop.run(run(decoder.decode(line)))
        except Exception as problem:
            done = jobs.Done(messages=0, seconds=0.0, error=f"{type(problem).__name__}: {problem}")
        sys.stdout.buffer.write(msgspec.json.encode(done) + b"\n")
        sys.stdout.buffer.flush()
        gc.collect()


if __name__ == "__main__":
    main()
