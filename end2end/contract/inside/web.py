"""Web server that runs in the sandbox: describes each request in its reply, and echoes WebSockets."""

import base64
import hashlib
import json
import socketserver
import struct
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def handle_any(self):
        if self.headers.get("Upgrade", "").lower() == "websocket":
            return self.web_socket()
        body = self.body()
        path = self.path.split("?")[0]
        if path == "/redirect":
            return self.reply(302, b"", [("Location", "/next?a=b")])
        if path == "/redirect-away":
            return self.reply(302, b"", [("Location", "https://other.example/x")])
        if path == "/cookies":
            return self.reply(200, b"{}", [("Set-Cookie", "a=1"), ("Set-Cookie", "b=2"), ("Server", "inside")])
        if path == "/page":
            return self.reply(200, b"<script>1</script>", [("Content-Type", "text/html")])
        if path == "/slow":
            return self.slow()
        if path.startswith("/status/"):
            return self.reply(int(path.rsplit("/")[-1]), b"as asked")
        seen = {
            "method": self.command,
            "target": self.path,
            "headers": [[name.lower(), value] for name, value in self.headers.items()],
            "length": len(body),
            "digest": hashlib.sha256(body).hexdigest(),
        }
        self.reply(200, json.dumps(seen).encode(), [("Content-Type", "application/json")])

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = do_HEAD = do_OPTIONS = handle_any

    def body(self):
        if self.headers.get("Transfer-Encoding", "").lower() == "chunked":
            data = b""
            while size := int(self.rfile.readline().split(b";")[0], 16):
                data += self.rfile.read(size)
                self.rfile.readline()
            self.rfile.readline()
            return data
        return self.rfile.read(int(self.headers.get("Content-Length") or 0))

    def reply(self, status, body, headers=()):
        self.send_response_only(status)
        for name, value in headers:
            self.send_header(name, value)
        if status != 204:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD" and status != 204:
            self.wfile.write(body)

    def slow(self):
        """Send a first chunk, and a second one only after a connection to the next port."""
        self.send_response_only(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        self.wfile.write(b"5\r\nfirst\r\n")
        self.wfile.flush()
        while not getattr(self.server, "go", False):
            time.sleep(0.02)
        self.wfile.write(b"6\r\nsecond\r\n0\r\n\r\n")

    def web_socket(self):
        """Echo messages; `close` closes with a private code."""
        accept = self.headers["Sec-WebSocket-Key"] + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
        self.send_response_only(101)
        self.send_header("Upgrade", "websocket")
        self.send_header("Connection", "Upgrade")
        self.send_header("Sec-WebSocket-Accept", base64.b64encode(hashlib.sha1(accept.encode()).digest()).decode())
        offered = self.headers.get("Sec-WebSocket-Protocol")
        if offered:
            self.send_header("Sec-WebSocket-Protocol", offered.split(",")[-1].strip())
        self.end_headers()
        self.frame(1, json.dumps({"target": self.path, "headers": [[n.lower(), v] for n, v in self.headers.items()]}).encode())
        while True:
            first, second = self.rfile.read(2)
            length = second & 127
            if length == 126:
                (length,) = struct.unpack(">H", self.rfile.read(2))
            elif length == 127:
                (length,) = struct.unpack(">Q", self.rfile.read(8))
            mask = self.rfile.read(4)
            data = bytes(byte ^ mask[at % 4] for at, byte in enumerate(self.rfile.read(length)))
            opcode = first & 15
            if opcode == 8:
                self.frame(8, data)
                break
            if data == b"close":
                self.frame(8, struct.pack(">H", 4321) + b"as you wish")
                break
            if opcode in (1, 2):
                self.frame(opcode, data)
        self.close_connection = True

    def frame(self, opcode, data):
        size = len(data)
        head = bytes([128 | opcode])
        if size < 126:
            head += bytes([size])
        elif size < 65536:
            head += bytes([126]) + struct.pack(">H", size)
        else:
            head += bytes([127]) + struct.pack(">Q", size)
        self.wfile.write(head + data)
        self.wfile.flush()

    def log_message(self, *arguments):
        pass


class Go(socketserver.BaseRequestHandler):
    """Lets /slow send its second chunk."""

    def handle(self):
        web.go = True


if __name__ == "__main__":
    port = int(sys.argv[1])
    web = ThreadingHTTPServer(("0.0.0.0", port), Handler)
    import threading

    go = socketserver.TCPServer(("0.0.0.0", port + 1), Go)
    threading.Thread(target=go.serve_forever, daemon=True).start()
    web.serve_forever()
