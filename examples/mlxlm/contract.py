"""The contract's rules that a plugin of any language keeps by itself: errors with a Kind, unknown fields, undeclared options."""

import grpc
from google.protobuf import unknown_fields
from google.protobuf.descriptor import FieldDescriptor

from clade.v1 import error_pb2

CODES = {
    error_pb2.KIND_INVALID_ARGUMENT: grpc.StatusCode.INVALID_ARGUMENT,
    error_pb2.KIND_UNSUPPORTED_OPTION: grpc.StatusCode.INVALID_ARGUMENT,
    error_pb2.KIND_UNSUPPORTED_MODEL: grpc.StatusCode.FAILED_PRECONDITION,
    error_pb2.KIND_UNSUPPORTED_MODEL_LOAD: grpc.StatusCode.FAILED_PRECONDITION,
    error_pb2.KIND_MEMORY_ADMISSION: grpc.StatusCode.RESOURCE_EXHAUSTED,
    error_pb2.KIND_OUT_OF_MEMORY: grpc.StatusCode.RESOURCE_EXHAUSTED,
    error_pb2.KIND_CONTEXT_TOO_LONG: grpc.StatusCode.OUT_OF_RANGE,
    error_pb2.KIND_ARTIFACT_CORRUPT: grpc.StatusCode.DATA_LOSS,
    error_pb2.KIND_NOT_FOUND: grpc.StatusCode.NOT_FOUND,
    error_pb2.KIND_BUSY: grpc.StatusCode.RESOURCE_EXHAUSTED,
    error_pb2.KIND_CANCELLED: grpc.StatusCode.CANCELLED,
    error_pb2.KIND_UNAVAILABLE: grpc.StatusCode.FAILED_PRECONDITION,
}


class Error(Exception):
    def __init__(self, kind, subject, message, next_step=""):
        super().__init__(": ".join(p for p in (subject, message) if p))
        self.detail = error_pb2.ErrorDetail(kind=getattr(error_pb2, "KIND_" + kind), subject=subject, message=message, next_step=next_step)


def varint(n):
    out = bytearray()
    while True:
        out.append((n & 0x7F) | (0x80 if n > 0x7F else 0))
        n >>= 7
        if not n:
            return bytes(out)


def field(number, data):
    return varint(number << 3 | 2) + varint(len(data)) + data


def abort(context, error):
    """Ends the call with the error as a detail of google.rpc.Status, written by hand: three fields."""
    code = CODES.get(error.detail.kind, grpc.StatusCode.INTERNAL)
    any_ = field(1, b"type.googleapis.com/clade.v1.ErrorDetail") + field(2, error.detail.SerializeToString())
    status = varint(1 << 3) + varint(code.value[0]) + field(2, str(error).encode()) + field(3, any_)
    context.set_trailing_metadata((("grpc-status-details-bin", status),))
    context.abort(code, str(error))


def walk_unknown(message, prefix, out):
    for f in unknown_fields.UnknownFieldSet(message):
        out.append("%s%d" % (prefix, f.field_number))
    for d, value in message.ListFields():
        if d.type != FieldDescriptor.TYPE_MESSAGE or (d.message_type.has_options and d.message_type.GetOptions().map_entry):
            continue
        for m in value if d.is_repeated else [value]:
            walk_unknown(m, prefix + d.name + ".", out)


def known(message):
    """Refuses fields that this build of the contract does not have."""
    out = []
    walk_unknown(message, "", out)
    if out:
        raise Error("UNSUPPORTED_OPTION", ", ".join(out), "unknown field of " + message.DESCRIPTOR.name, "update the plugin")


def has_options(descriptor):
    return any(f.has_presence for f in descriptor.fields)


def declared(message, options):
    """Refuses options that are set and not declared: those with presence, lists and maps."""
    missing = []

    def walk(m, prefix):
        for d, value in m.ListFields():
            path = prefix + d.name
            if not d.has_presence and not d.is_repeated:
                continue  # structure
            if d.message_type is not None and not d.is_repeated and has_options(d.message_type):
                walk(value, path + ".")
            elif path not in options:
                missing.append(path)

    walk(message, "")
    if missing:
        raise Error("UNSUPPORTED_OPTION", ", ".join(sorted(missing)), "this plugin does not honour it", "leave it out")
