#!/usr/bin/env python3
"""Runs one rank of a drill, and writes how it ended: run_rank.py FOLDER COMMAND...

The rank's standard error goes to FOLDER/error.RANK and its exit status to FOLDER/status.RANK. Signals of the launcher
go on to the rank, and this process waits for it."""
import os
import signal
import subprocess
import sys

folder, command = sys.argv[1], sys.argv[2:]
rank = os.environ["OMPI_COMM_WORLD_RANK"]
with open(f"{folder}/error.{rank}", "w", encoding="utf-8") as error:
    child = subprocess.Popen(command, stderr=error)
with open(f"{folder}/pid.{rank}", "w", encoding="utf-8") as file:
    file.write(str(child.pid))
signal.signal(signal.SIGTERM, lambda *_: child.terminate())
status = child.wait()
with open(f"{folder}/status.{rank}", "w", encoding="utf-8") as file:
    file.write(str(status))
sys.exit(0)
