#!/usr/bin/env python3
"""The wire protocol a second time: written from docs/reference/wire.md, with nothing of this project.

    wire_reader.py connect HOST PORT [KEY_FILE]   connects to a node and asks it something
    wire_reader.py accept [KEY_FILE]              is a node: prints its port, lets one peer in, asks it
    wire_reader.py examples PAGE                  reads the page's examples as frames

What it asks comes back as it was, with the same parts, in the answer; then it closes in order. Exit
status: 0, 1 if the other side breaks the protocol, 3 if it refuses, or is refused.
"""
import hashlib
import hmac
import re
import socket
import struct
import sys

DATA, ANNOUNCE, GRANT, REFUSE, WITHDRAW, CREDIT, ACKNOWLEDGE, HEARTBEAT, HEARTBEAT_REPLY, CLOSE = range(1, 11)
HELLO, CHALLENGE, PROOF, WELCOME, REJECT = range(32, 37)
CONTROL, NORMAL, BULK = range(3)
PREPAID, WINDOW = 1, 2
ASK, REPLY = 1, 2
UNSEQUENCED = (ACKNOWLEDGE, HEARTBEAT, HEARTBEAT_REPLY, HELLO, CHALLENGE, PROOF, WELCOME, REJECT)
HEADER = struct.Struct("<BBBBIQQQQQQII")
ENVELOPE = struct.Struct("<QQQQqQIIIHBB")
WAIT_S = 30


class Broken(Exception):
    """The other side does what the page does not allow."""


class Refused(Exception):
    """One side does not want the other, and has said why."""


def require(fine, what):
    if not fine:
        raise Broken(what)


# ---- CRC-32C


def make_table():
    table = []
    for value in range(256):
        for _ in range(8):
            value = value >> 1 ^ (0x82F63B78 if value & 1 else 0)
        table.append(value)
    return table


CRC_TABLE = make_table()


def crc32c(data):
    value = 0xFFFFFFFF
    for byte in data:
        value = value >> 8 ^ CRC_TABLE[(value ^ byte) & 0xFF]
    return value ^ 0xFFFFFFFF


# ---- Frames


def encode_frame(kind, payload=b"", lane=CONTROL, flags=0, message=0, offset=0, total=0, sequence=0,
                 acknowledgement=0):
    head = HEADER.pack(1, kind, lane, flags, 0, message, offset, len(payload), total, sequence,
                       acknowledgement, 0, 0)
    return head[:60] + struct.pack("<I", crc32c(head[:60])) + payload


class Frame:
    def __init__(self, head):
        (version, self.kind, self.lane, self.flags, channel, self.message, self.offset, self.length,
         self.total, self.sequence, self.acknowledgement, zero, checksum) = HEADER.unpack(head)
        require(version == 1, f"frame version {version}")
        require(checksum == crc32c(head[:60]), "the checksum is wrong")
        require(self.kind in range(1, 11) or self.kind in range(32, 37), f"kind {self.kind}")
        require(self.lane < 3 and self.flags < 4 and channel == 0 and zero == 0, "a wild header")
        require((self.sequence == 0) == (self.kind in UNSEQUENCED), "a sequence where none belongs")
        most = {DATA: 16 << 20, REFUSE: 4096, CLOSE: 4096}.get(self.kind, 16384 if self.kind >= HELLO else 0)
        require(self.length <= most, f"{self.length} bytes of payload")
        if self.kind == DATA:
            require(self.length and self.message and self.total >= 64, "an empty piece")
            require(self.offset + self.length <= self.total, "a piece outside its message")


# ---- FlatBuffers: one table of scalars, strings and byte vectors

SCALARS = {"u8": "<B", "u16": "<H", "u32": "<I", "u64": "<Q"}
HELLO_FIELDS = [("protocol_min", "u16"), ("protocol_max", "u16"), ("node_id", "u64"), ("incarnation", "u64"),
                ("boot_id", "text"), ("capabilities", "u64"), ("shard_count", "u32"), ("session", "u64"),
                ("link_index", "u32"), ("max_message_bytes", "u64"), ("max_fragment_bytes", "u32"),
                ("authentication", "u8"), ("nonce", "bytes"), ("delivered", "u64?")]
CHALLENGE_FIELDS = [("protocol", "u16"), ("node_id", "u64"), ("incarnation", "u64"), ("boot_id", "text"),
                    ("capabilities", "u64"), ("shard_count", "u32"), ("max_message_bytes", "u64"),
                    ("max_fragment_bytes", "u32"), ("authentication", "u8"), ("nonce", "bytes"),
                    ("proof", "bytes"), ("shm_name", "text"), ("shm_key", "bytes")]
PROOF_FIELDS = [("proof", "bytes")]
WELCOME_FIELDS = [("session", "u64"), ("link_index", "u32"), ("delivered", "u64?")]
REJECT_FIELDS = [("check", "u8"), ("text", "text")]


def read_table(fields, payload):
    """The fields by name, and where each vector's bytes begin."""
    try:
        table = struct.unpack_from("<I", payload, 0)[0]
        vtable = table - struct.unpack_from("<i", payload, table)[0]
        size = struct.unpack_from("<H", payload, vtable)[0]
        found, places = {}, {}
        for index, (name, kind) in enumerate(fields):
            slot = 4 + 2 * index
            at = struct.unpack_from("<H", payload, vtable + slot)[0] if slot < size else 0
            optional = kind.endswith("?")
            kind = kind.rstrip("?")
            if at == 0:
                found[name] = 0 if kind in SCALARS and not optional else None
            elif kind in SCALARS:
                found[name] = struct.unpack_from(SCALARS[kind], payload, table + at)[0]
            else:
                begin = table + at + struct.unpack_from("<I", payload, table + at)[0]
                length = struct.unpack_from("<I", payload, begin)[0]
                require(begin + 4 + length <= len(payload), f"{name} is longer than its buffer")
                places[name] = begin + 4
                found[name] = bytes(payload[begin + 4:begin + 4 + length])
        return found, places
    except struct.error as error:
        raise Broken(f"no table: {error}") from error


def write_table(fields, values):
    """Front to back, where the project's own builder writes back to front: both are FlatBuffers."""
    present = [(index, name, kind.rstrip("?")) for index, (name, kind) in enumerate(fields)
               if values.get(name) is not None]
    width = {"u64": 8, "u32": 4, "u16": 2, "u8": 1, "text": 4, "bytes": 4}
    inside = sorted(present, key=lambda field: -width[field[2]])
    slots = max((index + 1 for index, _, _ in present), default=0)
    vtable_size = 4 + 2 * slots
    table = 4 + vtable_size
    table += (4 - table) % 8  # what comes behind its first word is on a boundary of 8
    offsets, at = {}, 4
    for _, name, kind in inside:
        offsets[name] = at
        at += width[kind]
    end = table + at + (-(table + at)) % 4
    buffer = bytearray(end)
    struct.pack_into("<I", buffer, 0, table)
    struct.pack_into("<HH", buffer, 4, vtable_size, at)
    struct.pack_into("<i", buffer, table, table - 4)
    for index, name, kind in present:
        struct.pack_into("<H", buffer, 8 + 2 * index, offsets[name])
        place = table + offsets[name]
        if kind in SCALARS:
            struct.pack_into(SCALARS[kind], buffer, place, values[name])
            continue
        buffer.extend(bytes(-len(buffer) % 4))
        struct.pack_into("<I", buffer, place, len(buffer) - place)
        buffer += struct.pack("<I", len(values[name])) + values[name] + (b"\0" if kind == "text" else b"")
    return bytes(buffer)


# ---- Handshake


def prove(label, key, hello, blank_challenge):
    text = b"".join(struct.pack("<Q", len(part)) + part for part in (label, hello, blank_challenge))
    return hmac.new(key, text, hashlib.sha256).digest()


def blank(challenge, places):
    at = places["proof"]
    return challenge[:at] + bytes(32) + challenge[at + 32:]


def own_node(key):
    return {"node_id": 0x7079, "incarnation": 1, "boot_id": b"python", "capabilities": 0, "shard_count": 1,
            "max_message_bytes": 1 << 20, "max_fragment_bytes": 65536, "authentication": 1 if key else 0}


class Connection:
    def __init__(self, stream):
        self.stream = stream
        stream.settimeout(WAIT_S)

    def receive(self, size):
        data = b""
        while len(data) < size:
            part = self.stream.recv(size - len(data))
            require(part, "it closed the connection")
            data += part
        return data

    def receive_frame(self):
        frame = Frame(self.receive(64))
        return frame, self.receive(frame.length)

    def expect(self, kind, fields):
        frame, payload = self.receive_frame()
        if frame.kind == REJECT:
            reject, _ = read_table(REJECT_FIELDS, payload)
            raise Refused(f"check {reject['check']}: {(reject['text'] or b'').decode()}")
        require(frame.kind == kind, f"kind {frame.kind} instead of {kind}")
        return (payload, *read_table(fields, payload))

    def say(self, kind, fields, values):
        payload = write_table(fields, values)
        self.stream.sendall(encode_frame(kind, payload))
        return payload

    def refuse(self, text):
        self.say(REJECT, REJECT_FIELDS, {"check": 2, "text": text.encode()})
        raise Refused(text)

    def enter(self, key):
        """The connecting side."""
        hello = self.say(HELLO, HELLO_FIELDS, {**own_node(key), "protocol_min": 1, "protocol_max": 1, "session": 1,
                                              "link_index": 0, "nonce": bytes(range(32))})
        payload, challenge, places = self.expect(CHALLENGE, CHALLENGE_FIELDS)
        require(challenge["protocol"] == 1 and challenge["node_id"], "a wild challenge")
        require(challenge["shard_count"] == 1, "this reader has one link")
        proof = None
        if key:
            if challenge["proof"] is None:
                self.refuse("you have no key")
            blank_payload = blank(payload, places)
            if challenge["proof"] != prove(b"hyperframes accept", key, hello, blank_payload):
                self.refuse("your proof is wrong")
            proof = prove(b"hyperframes connect", key, hello, blank_payload)
        self.say(PROOF, PROOF_FIELDS, {"proof": proof})
        _, welcome, _ = self.expect(WELCOME, WELCOME_FIELDS)
        require(welcome == {"session": 1, "link_index": 0, "delivered": None}, "another link is welcome")

    def let_in(self, key):
        """The accepting side."""
        hello_payload, hello, _ = self.expect(HELLO, HELLO_FIELDS)
        require(hello["protocol_min"] <= 1 <= hello["protocol_max"] and len(hello["nonce"]) == 32, "a wild hello")
        values = {**own_node(key), "protocol": 1, "nonce": bytes(range(100, 132)), "proof": bytes(32) if key else None}
        blank_payload = write_table(CHALLENGE_FIELDS, values)
        if key:
            values["proof"] = prove(b"hyperframes accept", key, hello_payload, blank_payload)
        self.say(CHALLENGE, CHALLENGE_FIELDS, values)
        _, answer, _ = self.expect(PROOF, PROOF_FIELDS)
        if key and answer["proof"] != prove(b"hyperframes connect", key, hello_payload, blank_payload):
            self.refuse("your proof is wrong")
        self.say(WELCOME, WELCOME_FIELDS, {"session": hello["session"], "link_index": hello["link_index"]})


# ---- Messages


def align(offset):
    return offset + -offset % 64


def encode_message(envelope, metadata=b"", body=b"", segments=()):
    data = ENVELOPE.pack(envelope.get("type_id", 0), envelope.get("target", 0), envelope.get("source", 0),
                         envelope.get("correlation", 0), envelope.get("deadline_ns", 0), envelope.get("context", 0),
                         envelope.get("reply_room", 0), len(metadata), len(body), len(segments),
                         envelope.get("kind", 0), envelope.get("flags", 0))
    data += b"".join(struct.pack("<Q", len(segment)) for segment in segments)
    for part in (metadata, body, *segments):
        if part:
            data += bytes(align(len(data)) - len(data)) + part
    return data


def decode_message(data):
    (type_id, target, source, correlation, deadline_ns, context, reply_room, metadata_size, body_size, count, kind,
     flags) = ENVELOPE.unpack_from(data)
    require(kind <= 10 and deadline_ns >= 0 and metadata_size <= 65536 and count <= 1024, "a wild envelope")
    lengths = struct.unpack_from(f"<{count}Q", data, 64)
    at, parts = 64 + 8 * count, []
    for size in (metadata_size, body_size, *lengths):
        if size:
            at = align(at)
            require(at + size <= len(data), "a part outside its message")
        parts.append(data[at:at + size] if size else b"")
        at += size
    require(at == len(data), "the parts do not add up")
    envelope = {"type_id": type_id, "target": target, "source": source, "correlation": correlation,
                "deadline_ns": deadline_ns, "context": context, "reply_room": reply_room, "kind": kind, "flags": flags}
    return envelope, parts[0], parts[1], parts[2:]


# ---- A link


def cost(total):
    return align(total) + 64


class Link:
    WINDOW_BYTES, REPLY_ROOM = 65536, 4096

    def __init__(self, connection):
        self.connection = connection
        self.sequence = self.delivered = self.acknowledged = 0
        self.credit = [0, 0, 0]
        self.peer_closed = False
        self.partly = {}
        for lane in (CONTROL, NORMAL, BULK):
            room = 4 * cost(self.REPLY_ROOM) if lane == CONTROL else 0
            self.say(CREDIT, lane=lane, flags=WINDOW, total=self.WINDOW_BYTES, message=room)

    def say(self, kind, payload=b"", **fields):
        if kind not in UNSEQUENCED:
            self.sequence += 1
            fields["sequence"] = self.sequence
        self.connection.stream.sendall(encode_frame(kind, payload, acknowledgement=self.delivered, **fields))

    def turn(self):
        """Takes one frame; a message that it completes, or None."""
        frame, payload = self.connection.receive_frame()
        require(frame.kind < HELLO, "the handshake is over")
        require(frame.acknowledgement <= self.sequence, "it acknowledges what was not sent")
        self.acknowledged = max(self.acknowledged, frame.acknowledgement)
        if frame.sequence:
            require(frame.sequence == self.delivered + 1, "a frame is missing")
            self.delivered = frame.sequence
        if frame.kind == CREDIT:
            self.credit[frame.lane] += frame.total
        elif frame.kind == HEARTBEAT:
            self.say(HEARTBEAT_REPLY, message=frame.message)
        elif frame.kind == CLOSE:
            self.peer_closed = True
        elif frame.kind == DATA:
            return self.take(frame, payload)
        return None

    def take(self, frame, payload):
        have = self.partly.get(frame.lane, b"")
        require(frame.offset == len(have), "a piece is missing")
        have += payload
        self.partly[frame.lane] = have if len(have) < frame.total else b""
        if len(have) < frame.total:
            return None
        message = decode_message(have)
        if not frame.flags & PREPAID:
            self.say(CREDIT, lane=frame.lane, total=cost(frame.total))
        return frame, message

    def ask(self, number, metadata, body, segments):
        """Asks, and waits for the answer, which comes in the room that was kept for it."""
        envelope = {"type_id": 0x51, "source": 4, "target": 5, "correlation": 99, "kind": ASK,
                    "reply_room": self.REPLY_ROOM, "deadline_ns": WAIT_S * 10**9}
        data = encode_message(envelope, metadata, body, segments)
        while self.credit[NORMAL] < cost(len(data)):
            self.turn()
        self.credit[NORMAL] -= cost(len(data))
        # In two pieces, as it may be.
        self.say(DATA, data[:100], lane=NORMAL, message=number, total=len(data))
        self.say(DATA, data[100:], lane=NORMAL, message=number, offset=100, total=len(data))
        taken = None
        while taken is None:
            taken = self.turn()
        frame, (answer, *parts) = taken
        require(frame.flags & PREPAID, "the answer did not use the room that was kept for it")
        require(answer["kind"] == REPLY and answer["correlation"] == 99 and answer["target"] == 4, "no answer to that")
        require(parts == [metadata, body, list(segments)], "the answer is another one")

    def close(self):
        self.say(CLOSE)
        while not self.peer_closed or self.acknowledged < self.sequence:
            self.turn()
        self.say(ACKNOWLEDGE)
        # It has all, and closes.
        while self.connection.stream.recv(4096):
            pass


def talk(connection):
    link = Link(connection)
    link.ask(1, b"metadata", b"a body", [b"one segment", bytes(range(256))])
    link.close()


# ---- The page's examples


def blocks_of(page):
    with open(page, encoding="utf-8") as file:
        for name, text in re.findall(r"^```hex ([a-z-]+)\n(.*?)^```", file.read(), re.M | re.S):
            data, repeat = b"", False
            for line in text.splitlines():
                words = line.split(";")[0].split()
                if words == ["*"]:
                    repeat = True
                    continue
                at = int(words[0], 16)
                while repeat and len(data) < at:
                    data += data[-16:]
                repeat = False
                require(at == len(data), f"{name}: {at:x} is not the next offset")
                data += bytes.fromhex("".join(words[1:]))
            yield name, data


def read_examples(page):
    fields_of = {HELLO: HELLO_FIELDS, CHALLENGE: CHALLENGE_FIELDS, PROOF: PROOF_FIELDS, WELCOME: WELCOME_FIELDS,
                 REJECT: REJECT_FIELDS}
    examples, frames = dict(blocks_of(page)), 0
    for name, data in examples.items():
        if name == "offer":
            continue  # not a frame
        while data:
            frame, payload, data = Frame(data[:64]), data[64:], b""
            payload, data = payload[:frame.length], payload[frame.length:]
            frames += 1
            if frame.kind in fields_of:
                read_table(fields_of[frame.kind], payload)
            if frame.kind == DATA and payload and frame.length == frame.total:
                decode_message(payload)
    key = b"0123456789abcdef"
    hello, payload = examples["hello-key"][64:], examples["challenge-key"][64:]
    challenge, places = read_table(CHALLENGE_FIELDS, payload)
    require(challenge["proof"] == prove(b"hyperframes accept", key, hello, blank(payload, places)), "the first proof")
    proof, _ = read_table(PROOF_FIELDS, examples["proof-key"][64:])
    require(proof["proof"] == prove(b"hyperframes connect", key, hello, blank(payload, places)), "the second proof")
    print(f"{frames} frames of {len(examples)} examples read")


def key_of(arguments):
    if not arguments:
        return None
    with open(arguments[0], "rb") as file:
        return file.read().rstrip(b" \t\r\n")


def main(arguments):
    command, *rest = arguments or ["help"]
    if command == "examples":
        read_examples(rest[0])
    elif command == "connect":
        with socket.create_connection((rest[0], int(rest[1])), WAIT_S) as stream:
            connection = Connection(stream)
            connection.enter(key_of(rest[2:]))
            talk(connection)
    elif command == "accept":
        with socket.create_server(("127.0.0.1", 0)) as server:
            server.settimeout(WAIT_S)
            print(server.getsockname()[1], flush=True)
            stream, _ = server.accept()
        with stream:
            connection = Connection(stream)
            connection.let_in(key_of(rest))
            talk(connection)
    else:
        print(__doc__)
        return 2
    print("done")
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except Refused as error:
        print(f"refused: {error}")
        sys.exit(3)
    except (Broken, OSError) as error:
        print(f"broken: {error!r}")
        sys.exit(1)
