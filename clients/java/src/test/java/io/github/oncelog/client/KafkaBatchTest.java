package io.github.oncelog.client;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.google.gson.JsonArray;
import com.google.gson.JsonElement;
import com.google.gson.JsonObject;
import com.google.gson.JsonParser;
import io.github.oncelog.client.proto.Codec;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.HexFormat;
import org.junit.jupiter.api.Test;

/** Record batches of Kafka's clients, and damaged ones. */
class KafkaBatchTest {
  private static final int LEFT_OUT = 21; // bytes of a batch that are not stored

  private static JsonObject vectors() throws IOException {
    String text = Files.readString(Path.of("../../tests/vectors/kafka/batches.json"));
    return JsonParser.parseString(text).getAsJsonObject();
  }

  private static byte[] bytes(JsonElement digits) {
    return digits.isJsonNull() ? null : HexFormat.of().parseHex(digits.getAsString());
  }

  @Test
  void readsBatchesOfKafkasClients() throws IOException {
    JsonArray records = vectors().getAsJsonArray("records");
    JsonArray batches = vectors().getAsJsonArray("batches");
    assertTrue(batches.size() >= 8);
    for (JsonElement each : batches) {
      JsonObject batch = each.getAsJsonObject();
      String name = batch.get("client") + " " + batch.get("codec");
      byte[] whole = bytes(batch.get("batch"));
      byte[] stored = Arrays.copyOfRange(whole, LEFT_OUT, whole.length);
      byte[] payload = Codecs.decompress(Codec.CODEC_KAFKA_V2, stored);
      Payload read = new Payload(payload, records.size());
      for (int row = 0; row < records.size(); row++) {
        JsonObject wanted = records.get(row).getAsJsonObject();
        StoredRecord record = read.record(new TopicPartition("t", 0), row, row);
        assertArrayEquals(bytes(wanted.get("value")), record.value(), name);
        assertArrayEquals(bytes(wanted.get("key")), record.key(), name);
        assertEquals(wanted.get("timestamp_ms").getAsLong() * 1000, record.timestampUs(), name);
        JsonArray headers = wanted.getAsJsonArray("headers");
        assertEquals(headers.size(), record.headers().size(), name);
        for (int i = 0; i < headers.size(); i++) {
          JsonArray pair = headers.get(i).getAsJsonArray();
          assertEquals(pair.get(0).getAsString(), record.headers().get(i).key(), name);
          assertArrayEquals(bytes(pair.get(1)), record.headers().get(i).value(), name);
        }
      }
      for (int size = 0; size < stored.length; size++) {
        byte[] cut = Arrays.copyOf(stored, size);
        assertThrows(OncelogException.class, () -> KafkaBatch.columns(cut), name);
      }
    }
  }

  @Test
  void readsASnappyBlockOfLibrdkafka() throws IOException {
    JsonObject block = vectors().getAsJsonObject("snappy_block");
    assertArrayEquals(bytes(block.get("plain")), KafkaBatch.unsnappy(bytes(block.get("block"))));
  }

  @Test
  void refusesAHeaderKeyThatIsNotUtf8() {
    ByteBuffer batch = ByteBuffer.allocate(50).putInt(36, 1).position(40);
    // Length, attributes, two deltas, null key, null value, one header: the key ff, a null.
    batch.put(new byte[] {18, 0, 0, 0, 1, 1, 2, 2, (byte) 0xff, 1});
    OncelogException error =
        assertThrows(OncelogException.class, () -> KafkaBatch.columns(batch.array()));
    assertTrue(error.getMessage().contains("not UTF-8"), error.getMessage());
  }
}
