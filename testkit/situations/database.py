"""A threaded HTTP server with one SQLite connection per request. Ends well at SIGTERM.

    database.py FILE
"""

import http.server
import signal
import sqlite3
import sys
import threading


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        connection = sqlite3.connect(sys.argv[1], timeout=60)
        try:
            with connection:
                connection.execute("insert into visits (path) values (?)", (self.path,))
            count = connection.execute("select count(*) from visits").fetchone()[0]
        finally:
            connection.close()
        body = f"HELD {count}".encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


def main():
    connection = sqlite3.connect(sys.argv[1])
    connection.execute("create table visits (path text)")
    connection.commit()
    connection.close()
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    stop = lambda *_: threading.Thread(target=server.shutdown).start()
    signal.signal(signal.SIGTERM, stop)
    print("READY", server.server_address[1], flush=True)
    server.serve_forever()
    server.server_close()


main()
