"""The codecs inside record batches: gzip, snappy (xerial), lz4 frames, zstd.

Reference: record-format 3.

Record bytes pass through a broker compressed.  Decompression happens only where records must be
seen, and is always bounded: a small payload may claim to hold gigabytes.
"""

import struct
import zlib
from enum import IntEnum
from typing import Final

import cramjam
import lz4.frame

from kafkalike.runtime.ports import Buffer

DECOMPRESSED_LIMIT: Final = 256 << 20
"""Default bound of what one batch may unpack to, in bytes."""

_XERIAL_MAGIC: Final = b"\x82SNAPPY\x00"
_XERIAL_HEADER: Final = _XERIAL_MAGIC + struct.pack(">ii", 1, 1)
_XERIAL_BLOCK: Final = 32 << 10
_LZ4_MAGIC: Final = b"\x04\x22\x4d\x18"
_LZ4_INDEPENDENT_BLOCKS: Final = 0x20
_LZ4_DICTIONARY: Final = 0x01
_ZSTD_MAGIC: Final = b"\x28\xb5\x2f\xfd"
_GZIP_DEFAULT_LEVEL: Final = 6
_LZ4_FAST_LEVEL: Final = 9
_ZSTD_DEFAULT_LEVEL: Final = 3


class Codec(IntEnum):
    """Bits 0-2 of a batch's attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


CODEC_NAMES: Final = {
    "none": Codec.NONE,
    "uncompressed": Codec.NONE,
    "gzip": Codec.GZIP,
    "snappy": Codec.SNAPPY,
    "lz4": Codec.LZ4,
    "zstd": Codec.ZSTD,
}
"""Values of compression.type that name a codec ("producer" does not)."""


class DecompressionError(ValueError):
    """The payload is not what its codec demands, or unpacks to more than was allowed."""


def compress(codec: int, data: Buffer, level: int | None = None) -> bytes:
    """`data` in the framing Kafka uses for the codec.  `level` None = Kafka's default."""
    if codec == Codec.NONE:
        return bytes(data)
    if codec == Codec.GZIP:
        packer = zlib.compressobj(
            _GZIP_DEFAULT_LEVEL if level is None or level < 0 else level, wbits=31
        )
        return packer.compress(data) + packer.flush()
    if codec == Codec.SNAPPY:
        return _compress_xerial(data)
    if codec == Codec.LZ4:
        # Kafka's level 9 is its fast compressor; its readers refuse linked blocks.
        fast = level is None or level == _LZ4_FAST_LEVEL
        packed: bytes = lz4.frame.compress(
            data,
            compression_level=0 if fast else level,
            block_size=lz4.frame.BLOCKSIZE_MAX64KB,
            block_linked=False,
            content_checksum=False,
            store_size=False,
        )
        return packed
    if codec == Codec.ZSTD:
        return bytes(
            cramjam.zstd.compress(data, level=_ZSTD_DEFAULT_LEVEL if level is None else level)
        )
    raise DecompressionError(f"codec {codec} does not exist, expected 0 to 4")


def decompress(codec: int, data: Buffer, limit: int = DECOMPRESSED_LIMIT) -> Buffer:
    """The content of `data`, at most `limit` bytes.

    Bytes behind the end of a gzip or lz4 stream are ignored, as Kafka does.  Raises
    DecompressionError.
    """
    if codec == Codec.NONE:
        return data
    if codec == Codec.GZIP:
        return _decompress_gzip(data, limit)
    if codec == Codec.SNAPPY:
        return _decompress_snappy(data, limit)
    if codec == Codec.LZ4:
        return _decompress_lz4(data, limit)
    if codec == Codec.ZSTD:
        return _decompress_zstd(data, limit)
    raise DecompressionError(f"codec {codec} does not exist, expected 0 to 4")


def _too_large(limit: int) -> DecompressionError:
    return DecompressionError(f"the payload unpacks to more than the allowed {limit} bytes")


def _decompress_gzip(data: Buffer, limit: int) -> bytes:
    output = bytearray()
    rest: Buffer = data
    while True:
        unpacker = zlib.decompressobj(wbits=31)
        try:
            output += unpacker.decompress(rest, limit - len(output) + 1)
        except zlib.error as error:
            if output:
                return bytes(output)  # garbage behind a complete member
            raise DecompressionError(f"gzip: {error}") from error
        if len(output) > limit:
            raise _too_large(limit)
        if not unpacker.eof:
            raise DecompressionError("gzip: the stream ends early")
        rest = unpacker.unused_data
        if rest[:2] != b"\x1f\x8b":  # no further member
            return bytes(output)


def is_lz4_of_kafka(data: Buffer) -> bool:
    """Whether an lz4 frame starts as Kafka's own reader demands: independent blocks, no dictionary.

    What is let in without that can be read by other clients, but not by Kafka's.
    """
    return (
        len(data) > 4
        and bytes(data[:4]) == _LZ4_MAGIC
        and data[4] & (_LZ4_INDEPENDENT_BLOCKS | _LZ4_DICTIONARY) == _LZ4_INDEPENDENT_BLOCKS
    )


def _decompress_lz4(data: Buffer, limit: int) -> bytes:
    if bytes(data[:4]) != _LZ4_MAGIC:
        raise DecompressionError("lz4: the frame magic is missing")
    if not is_lz4_of_kafka(data):
        raise DecompressionError("lz4: linked blocks or a dictionary, expected independent blocks")
    unpacker = lz4.frame.LZ4FrameDecompressor()
    try:
        output: bytes = unpacker.decompress(data, max_length=limit + 1)
    except RuntimeError as error:
        raise DecompressionError(f"lz4: {error}") from error
    if len(output) > limit:
        raise _too_large(limit)
    if not unpacker.eof:
        raise DecompressionError("lz4: the frame ends early")
    return output


def _zstd_content_size(data: Buffer) -> int | None:
    """The size that a zstd frame header declares, None when it declares none (RFC 8878 3.1.1.1)."""
    if len(data) < 6 or bytes(data[:4]) != _ZSTD_MAGIC:
        raise DecompressionError("zstd: the frame magic is missing")
    descriptor = data[4]
    single_segment = descriptor >> 5 & 1
    size_bytes = (single_segment, 2, 4, 8)[descriptor >> 6]
    if not size_bytes:
        return None
    start = 5 + (0 if single_segment else 1) + (0, 1, 2, 4)[descriptor & 3]
    if len(data) < start + size_bytes:
        raise DecompressionError("zstd: the frame header ends early")
    size = int.from_bytes(data[start : start + size_bytes], "little")
    return size + 256 if size_bytes == 2 else size


def _decompress_zstd(data: Buffer, limit: int) -> Buffer:
    declared = _zstd_content_size(data)
    if declared is not None and declared > limit:
        raise _too_large(limit)
    # Without a declared size the room grows until the content fits or the limit is reached.
    room = declared if declared is not None else min(limit, max(1 << 16, len(data) * 4))
    while True:
        output = bytearray(room)
        try:
            size = cramjam.zstd.decompress_into(data, output)
        except cramjam.DecompressionError as error:
            if "whole buffer" not in str(error):
                raise DecompressionError(f"zstd: {error}") from error
            if declared is not None:
                raise DecompressionError("zstd: more content than the frame declares") from error
            if room >= limit:
                raise _too_large(limit) from error
            room = min(limit, room * 4)
            continue
        return memoryview(output)[:size]


def _compress_xerial(data: Buffer) -> bytes:
    view = memoryview(data)
    parts = [_XERIAL_HEADER]
    for start in range(0, len(view), _XERIAL_BLOCK):
        block = bytes(cramjam.snappy.compress_raw(view[start : start + _XERIAL_BLOCK]))
        parts.append(len(block).to_bytes(4, "big"))
        parts.append(block)
    return b"".join(parts)


def _decompress_snappy(data: Buffer, limit: int) -> bytes:
    """Xerial chunks, or one raw block without the header; concatenated streams are tolerated."""
    view = memoryview(data)
    if bytes(view[:8]) != _XERIAL_MAGIC:
        return _snappy_block(view, limit)
    output = bytearray()
    position = len(_XERIAL_HEADER)
    if len(view) < position:
        raise DecompressionError("snappy: the stream header ends early")
    while position < len(view):
        if bytes(view[position : position + 8]) == _XERIAL_MAGIC:
            position += len(_XERIAL_HEADER)
            continue
        length = int.from_bytes(view[position : position + 4], "big", signed=True)
        position += 4
        if length < 0 or length > len(view) - position:
            raise DecompressionError(
                f"snappy: a block declares {length} bytes, {max(len(view) - position, 0)} are left"
            )
        output += _snappy_block(view[position : position + length], limit - len(output))
        position += length
    return bytes(output)


def _snappy_block(block: memoryview, limit: int) -> bytes:
    try:
        if cramjam.snappy.decompress_raw_len(block) > limit:
            raise _too_large(limit)
        return bytes(cramjam.snappy.decompress_raw(block))
    except cramjam.DecompressionError as error:
        raise DecompressionError(f"snappy: {error}") from error
