package io.github.oncelog.client;

import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.List;

/**
 * The records of a batch while it fills, as the columns that docs/protocol.md lays out, so that
 * encoding is little more than a copy.
 */
final class Columns {
  /**
   * Most bytes that one record adds beside its own bytes, headers left out: 4 + 4 of offsets, 8 of
   * timestamp, validity bits, and 4 of header offsets.
   */
  static final int RECORD_OVERHEAD = 21;

  static final int HEADER_OVERHEAD = 9;

  /** Preamble, one more offset in each of five offset buffers, and all padding. */
  static final int BATCH_OVERHEAD = Payload.PREAMBLE_BYTES + 5 * 4 + 11 * 7;

  /** A column of byte strings, of which some may be null. */
  private static final class Column {
    int rows;
    int[] ends = new int[16];
    byte[] data = new byte[256];
    int length;
    int nulls;
    byte[] valid = new byte[0];

    void add(byte[] item) {
      if (item == null) {
        if (nulls == 0) {
          valid = new byte[rows / 8 + 16];
          for (int row = 0; row < rows; row++) {
            valid[row / 8] |= (byte) (1 << row % 8);
          }
        }
        nulls++;
      }
      if (nulls > 0) {
        if (rows / 8 >= valid.length) {
          valid = Arrays.copyOf(valid, valid.length * 2);
        }
        if (item != null) {
          valid[rows / 8] |= (byte) (1 << rows % 8);
        }
      }
      if (item != null) {
        if (item.length > data.length - length) {
          data = Arrays.copyOf(data, Math.max(data.length * 2, length + item.length));
        }
        System.arraycopy(item, 0, data, length, item.length);
        length += item.length;
      }
      if (rows == ends.length) {
        ends = Arrays.copyOf(ends, rows * 2);
      }
      ends[rows++] = length;
    }

    int size() {
      int size = padded(4 * (rows + 1)) + padded(length);
      return nulls > 0 ? size + padded((rows + 7) / 8) : size;
    }

    int encode(byte[] out, int at) {
      if (nulls > 0) {
        int bytes = (rows + 7) / 8;
        System.arraycopy(valid, 0, out, at, bytes);
        at += padded(bytes);
      }
      at = putOffsets(out, at, ends, rows);
      System.arraycopy(data, 0, out, at, length);
      return at + padded(length);
    }
  }

  private final Column values = new Column();

  /** With room for values that another batch has left, or null. */
  Columns(byte[] room) {
    if (room != null) {
      values.data = room;
    }
  }

  /** The room for values; of use to another batch once this one is encoded. */
  byte[] room() {
    return values.data;
  }

  private Column keys; // null while all keys are null
  private long[] timestamps = new long[16];
  private int count;
  private long maxTimestamp = Long.MIN_VALUE;
  private int[] headerEnds; // null while there is no header
  private final Column headerKeys = new Column();
  private final Column headerValues = new Column();

  int count() {
    return count;
  }

  long maxTimestamp() {
    return maxTimestamp;
  }

  void add(byte[] value, byte[] key, List<Header> headers, long timestampUs) {
    values.add(value);
    if (key != null && keys == null) {
      keys = new Column();
      for (int row = 0; row < count; row++) {
        keys.add(null);
      }
    }
    if (keys != null) {
      keys.add(key);
    }
    if (!headers.isEmpty() && headerEnds == null) {
      headerEnds = new int[Math.max(16, count * 2)];
    }
    if (headerEnds != null) {
      for (Header header : headers) {
        headerKeys.add(header.key().getBytes(StandardCharsets.UTF_8));
        headerValues.add(header.value());
      }
      if (count == headerEnds.length) {
        headerEnds = Arrays.copyOf(headerEnds, count * 2);
      }
      headerEnds[count] = headerKeys.rows;
    }
    if (count == timestamps.length) {
      timestamps = Arrays.copyOf(timestamps, count * 2);
    }
    timestamps[count++] = timestampUs;
    maxTimestamp = Math.max(maxTimestamp, timestampUs);
  }

  /** The payload. */
  byte[] encode() {
    int flags = 0;
    long size = Payload.PREAMBLE_BYTES + values.size() + 8L * count;
    if (values.nulls > 0) {
      flags |= Payload.VALUE_VALIDITY;
    }
    if (keys != null) {
      flags |= Payload.KEYS | (keys.nulls > 0 ? Payload.KEY_VALIDITY : 0);
      size += keys.size();
    }
    boolean hasHeaders = headerKeys.rows > 0;
    if (hasHeaders) {
      flags |= Payload.HEADERS | (headerValues.nulls > 0 ? Payload.HEADER_VALUE_VALIDITY : 0);
      size += padded(4 * (count + 1)) + headerKeys.size() + headerValues.size();
    }
    if (size > Payload.MAX_BYTES) {
      throw new OncelogException(
          ErrorKind.INVALID_BATCH, "%d bytes are over the limit %d", size, Payload.MAX_BYTES);
    }
    byte[] out = new byte[(int) size];
    Bytes.putInt(out, 0, Payload.MAGIC);
    int[] numbers = {
      flags,
      count,
      headerKeys.rows,
      values.length,
      keys == null ? 0 : keys.length,
      headerKeys.length,
      headerValues.length
    };
    for (int i = 0; i < numbers.length; i++) {
      Bytes.putInt(out, 4 + 4 * i, numbers[i]);
    }
    int at = values.encode(out, Payload.PREAMBLE_BYTES);
    if (keys != null) {
      at = keys.encode(out, at);
    }
    for (int row = 0; row < count; row++, at += 8) {
      Bytes.putLong(out, at, timestamps[row]);
    }
    if (hasHeaders) {
      at = putOffsets(out, at, headerEnds, count);
      at = headerKeys.encode(out, at);
      at = headerValues.encode(out, at);
    }
    assert at == size : "a payload of " + at + " bytes was to have " + size;
    return out;
  }

  private static int putOffsets(byte[] out, int at, int[] ends, int rows) {
    for (int row = 0; row < rows; row++) {
      Bytes.putInt(out, at + 4 + 4 * row, ends[row]);
    }
    return at + padded(4 * (rows + 1));
  }

  static int padded(int size) {
    return size + 7 & ~7;
  }
}
