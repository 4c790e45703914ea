"""An HTTP server that leaks one file per request. Ends well at SIGINT."""

import http.server
import os

held = []


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        held.append(os.open("/etc/passwd", os.O_RDONLY))  # LEAK
        body = f"HELD {len(held)}".encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


def main():
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    print("READY", server.server_address[1], flush=True)
    try:
        server.serve_forever()
    except KeyboardInterrupt:
        pass


main()
