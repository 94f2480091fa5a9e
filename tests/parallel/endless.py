"""Run one of two processes, `endless.py ADDRESS PROCESS busy|idle`: meet the other forever, or once and then sleep."""

import faulthandler
import sys
import time

from knnprompt_jax.common import parallel

if __name__ == "__main__":
    address, process, state = sys.argv[1:]
    faulthandler.enable()  # As absl does.
    parallel.HEARTBEAT_TIMEOUT = 10
    parallel.start(auto=False, address=address, num_processes=2, process_id=int(process))
    parallel.wait_for_all("start")
    print("running", flush=True)
    while True:
        time.sleep(0.1)
        if state == "busy":
            parallel.wait_for_all("again")
