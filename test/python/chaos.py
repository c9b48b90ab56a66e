"""Runs a program of the examples and kills it, as kill -9 does, before or after a call of one of its functions.

    chaos.py PROGRAM ARGUMENTS...

CHAOS: "FUNCTION before" or "FUNCTION after" dies there; a number lets it live about so many seconds, then it dies at the point of
CHAOS_POINTS (a list with commas; default: all there are) where the fewest have died so far. CHAOS_LOG: a file that gets one line for each
death, the point.
"""
import functools
import importlib
import inspect
import os
import random
import signal
import sys
import time
from collections import Counter
from typing import Any

chaos = os.environ.get("CHAOS", "")
points: list[str] = []
target, due = chaos, 0.0


def draw() -> None:
    global target, due
    log = os.environ["CHAOS_LOG"]
    deaths = Counter(open(log).read().splitlines()) if os.path.exists(log) else Counter()
    target = min(points, key=lambda point: (deaths[point], random.random()))
    due = time.monotonic() + random.expovariate(1 / float(chaos))


def passes(point: str) -> None:
    if time.monotonic() < due:
        return
    if point == target:
        log = os.open(os.environ["CHAOS_LOG"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        os.write(log, f"{point}\n".encode())
        os.kill(os.getpid(), signal.SIGKILL)
    if target != chaos and time.monotonic() > due + min(1.0, float(chaos)):
        draw()          # nobody comes by there


def wrapped(name: str, function: Any) -> Any:
    if not name.startswith(("on_", "__")):      # callbacks happen within what waits for them
        points.extend([f"{name} before", f"{name} after"])

    @functools.wraps(function)
    def wrapper(*arguments: Any, **named: Any) -> Any:
        passes(f"{name} before")
        result = function(*arguments, **named)
        passes(f"{name} after")
        return result
    return wrapper


def wrap_all(holder: Any, module: str) -> None:
    for name, value in list(vars(holder).items()):
        if inspect.isfunction(value) and value.__module__ == module and name != "main" and not inspect.isgeneratorfunction(value):
            setattr(holder, name, wrapped(name, value))
        elif inspect.isclass(value) and value.__module__ == module:
            wrap_all(value, module)


directory, program = os.path.split(sys.argv[1])
sys.argv = sys.argv[1:]
sys.path.insert(0, directory)
main = importlib.import_module(program.removesuffix(".py"))
for name, module in list(sys.modules.items()):
    if os.path.dirname(getattr(module, "__file__", None) or "") == directory and name != "__main__":
        wrap_all(module, name)
if chaos and " " not in chaos:
    if only := os.environ.get("CHAOS_POINTS"):
        points = only.split(",")
    draw()
main.main()
