"""Run one of two processes, `refused.py ADDRESS LOCKED_PATH PROCESS`: print what process 0 alone finds out.

A third process has locked the path.
"""

import pathlib
import sys

from knnprompt_jax.common import errors, files, parallel

if __name__ == "__main__":
    address, held, process = sys.argv[1:]
    parallel.start(auto=False, address=address, num_processes=2, process_id=int(process))
    try:
        with parallel.enter_in_main(files.lock(pathlib.Path(held))):
            pass
    except errors.UserError as error:
        print(error)
    with parallel.enter_in_main(files.lock(pathlib.Path(held).with_name("free"))):
        print("within the free one")
    print(parallel.call_in_main(lambda: (process, "x" * 5000))[0], "for all")
    try:
        parallel.call_in_main(pathlib.Path(f"{held}.nowhere").stat)
    except FileNotFoundError as error:
        print(error)
    parallel.wait_for_all("end")
