"""A model file that has only a head: it is listed but never loaded; and a bare way to ask the server that lists it."""

import http.client
import struct


def _string(text):
    return struct.pack("<Q", len(text)) + text.encode()


HEAD = b"GGUF" + struct.pack("<IQQ", 3, 0, 2) + _string("general.architecture") + struct.pack("<I", 8) + _string("toy")
HEAD += _string("general.file_type") + struct.pack("<II", 4, 15)


def ask(server, method, path, body=None, headers=None):
    connection = http.client.HTTPConnection(server.host, server.port, timeout=20)
    connection.request(method, path, body, headers or {})
    answer = connection.getresponse()
    content = answer.read()
    connection.close()
    return answer.status, content
