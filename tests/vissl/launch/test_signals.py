"""Stop signals reach ranks; where there are none, they do what they did before."""

import multiprocessing
import os
import signal
import subprocess
import sys
import time

from pirl_plugin.vissl.launch.signals import forward_signals

CODE = """
import multiprocessing, signal, sys, time
from pirl_plugin.vissl.launch.signals import forward_signals

def read():
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # as readers of images do
    time.sleep(60)

if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.SIG_DFL)  # whatever the tests' process does about it
    with forward_signals():
        multiprocessing.get_context("fork").Process(target=read, daemon=True).start()
        print("ready", flush=True)
        time.sleep(60)
"""


def test_sigterm__ends_a_run_of_one_process_whatever_readers_it_has():
    """Sent to the readers alone, which ignore it, it was lost until the first step."""
    run = subprocess.Popen([sys.executable, "-c", CODE], stdout=subprocess.PIPE, text=True)
    assert run.stdout.readline() == "ready\n"
    run.send_signal(signal.SIGTERM)
    assert run.wait(timeout=20) == -signal.SIGTERM


def wait(ready):
    signal.signal(signal.SIGTERM, signal.SIG_DFL)  # a rank is spawned, and inherits no handler
    ready.set()
    time.sleep(60)


def test_sigterm__goes_to_ranks_and_the_launcher_lives_on():
    context = multiprocessing.get_context("fork")
    ready = context.Event()
    rank = context.Process(target=wait, args=(ready,), daemon=False)
    rank.start()
    assert ready.wait(20)
    with forward_signals():
        os.kill(os.getpid(), signal.SIGTERM)
        rank.join(20)
    assert rank.exitcode == -signal.SIGTERM
