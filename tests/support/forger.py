"""A program of another user that takes the port of every server that is being booted, and answers yes to any key.

Started as ``python forger.py FOLDER UID TEXT``. It looks for ``--port N`` in all command lines that hold TEXT, and
listens on 127.0.0.1:N before the server does. FOLDER/heard gets what it was sent, FOLDER/ports the ports that
it took, and FOLDER/ready a byte once it looks.
"""

import json
import os
import socket
import sys
import threading
import time
from pathlib import Path

FOLDER, USER, ONLY = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3].encode()
INFO = json.dumps({"version": "9.9", "model_path": "m"}).encode()
ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s"
LOCK = threading.Lock()
# Opened before the user is changed, who may not enter the folder.
FILES = {name: (FOLDER / name).open("ab", buffering=0) for name in ("ready", "ports", "heard")}


def main() -> None:
    if os.geteuid() != USER:
        os.setgid(USER)
        os.setuid(USER)
    seen: set[int] = set()
    note("ready", b"!")
    while True:
        for port in ports() - seen:
            seen.add(port)
            threading.Thread(target=pose, args=(port,), daemon=True).start()
        time.sleep(0.01)


def ports() -> set[int]:
    found = set()
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = path.read_bytes()
        except OSError:
            continue
        words = line.split(b"\0")
        if ONLY in line and b"--port" in words and b"--model-path" in words:
            found.add(int(words[words.index(b"--port") + 1]))
    return found


def pose(port: int) -> None:
    server = socket.socket()
    server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        server.bind(("127.0.0.1", port))
    except OSError:
        return
    server.listen()
    note("ports", f"{port}\n".encode())
    while True:
        connection, _ = server.accept()
        threading.Thread(target=answer, args=(connection,), daemon=True).start()


def answer(connection: socket.socket) -> None:
    with connection:
        heard = b""
        while b"\r\n\r\n" not in heard and (piece := connection.recv(65536)):
            heard += piece
        note("heard", heard)
        # Open to a key and closed without one, as a server that insists on its key.
        if b"authorization" in heard.lower():
            connection.sendall(ANSWER % (len(INFO), INFO))
        else:
            connection.sendall(b"HTTP/1.1 401 Unauthorized\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")


def note(name: str, data: bytes) -> None:
    with LOCK:
        FILES[name].write(data)


main()
