#!/usr/bin/env python3
"""Runs one rank of a drill, and writes how it ended: run_rank.py FOLDER COMMAND...

The rank's standard error goes to FOLDER/error.RANK, its process's number to FOLDER/pid.RANK and its exit status to
FOLDER/status.RANK. A process of its own waits for the rank: the launcher's SIGTERM goes on to it, but the SIGKILL that
follows after a second reaches this process alone, so a rank must end by itself."""
import contextlib
import os
import signal
import subprocess
import sys

folder, command = sys.argv[1], sys.argv[2:]
rank = os.environ["OMPI_COMM_WORLD_RANK"]


def write(name, text):
    with open(f"{folder}/.{name}.{rank}", "w", encoding="utf-8") as file:
        file.write(str(text))
    with contextlib.suppress(OSError):  # the drill may be over
        os.rename(f"{folder}/.{name}.{rank}", f"{folder}/{name}.{rank}")


def pass_on(*_):
    with contextlib.suppress(OSError, ValueError), open(f"{folder}/pid.{rank}", encoding="utf-8") as file:
        os.kill(int(file.read()), signal.SIGTERM)


observer = os.fork()
if observer == 0:
    os.setsid()
    with open(f"{folder}/error.{rank}", "w", encoding="utf-8") as error, \
            subprocess.Popen(command, stderr=error) as child:
        write("pid", child.pid)
        status = child.wait()
    with contextlib.suppress(OSError):
        write("status", status)
    os._exit(0)
signal.signal(signal.SIGTERM, pass_on)
os.waitpid(observer, 0)
