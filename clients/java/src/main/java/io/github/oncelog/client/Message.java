package io.github.oncelog.client;

import java.nio.charset.StandardCharsets;
import java.time.Instant;
import java.time.temporal.ChronoUnit;
import java.util.List;

/**
 * A record to be sent. A null value or key is not an empty one.
 *
 * @param timestampUs microseconds since the Unix epoch; null: the time of the call
 */
public record Message(
    String topic, byte[] value, byte[] key, List<Header> headers, Long timestampUs) {
  /** Takes null for no headers. */
  public Message {
    headers = headers == null ? List.of() : headers;
  }

  /** A value alone. */
  public static Message of(String topic, byte[] value) {
    return new Message(topic, value, null, List.of(), null);
  }

  /** A value with a key. */
  public static Message of(String topic, byte[] value, byte[] key) {
    return new Message(topic, value, key, List.of(), null);
  }

  /** The same with these headers. */
  public Message withHeaders(Header... headers) {
    return new Message(topic, value, key, List.of(headers), timestampUs);
  }

  /** The same with this timestamp. */
  public Message at(Instant time) {
    return new Message(topic, value, key, headers, ChronoUnit.MICROS.between(Instant.EPOCH, time));
  }

  /** Most bytes that it takes in a payload. */
  int size() {
    int size = Columns.RECORD_OVERHEAD;
    size += value == null ? 0 : value.length;
    size += key == null ? 0 : key.length;
    for (Header header : headers) {
      size += Columns.HEADER_OVERHEAD + header.key().getBytes(StandardCharsets.UTF_8).length;
      size += header.value() == null ? 0 : header.value().length;
    }
    return size;
  }
}
