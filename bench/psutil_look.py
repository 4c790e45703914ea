"""What psutil can tell about descriptors: of one process, or the count of every process (`all`)."""
import sys

import psutil

if sys.argv[1] == "all":
    total = 0
    for process in psutil.process_iter():
        try:
            total += process.num_fds()
        except psutil.Error:
            pass
    print(total)
else:
    process = psutil.Process(int(sys.argv[1]))
    print(len(process.open_files()) + len(process.net_connections(kind="all")))
