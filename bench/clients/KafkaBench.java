import java.time.Duration;
import java.util.Locale;
import java.util.Map;
import java.util.concurrent.atomic.AtomicReference;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * Measures kafka-clients, Kafka's client for Java: one process's send rate to a topic, and its
 * processor time. Bench among the tests of clients/java does the same. It prints one line of JSON.
 * Batches, linger and buffer are those of docs/client-defaults.json.
 *
 * <pre>java -cp 'JARS/*' KafkaBench.java SERVERS TOPIC SECONDS BYTES</pre>
 */
public final class KafkaBench {
  private KafkaBench() {}

  /** See above. */
  public static void main(String[] args) throws Exception {
    String topic = args[1];
    double seconds = Double.parseDouble(args[2]);
    byte[] value = new byte[Integer.parseInt(args[3])];
    Map<String, Object> settings =
        Map.of(
            "bootstrap.servers", args[0],
            "acks", "all",
            "enable.idempotence", true,
            "compression.type", "none",
            "linger.ms", 5,
            "batch.size", 1 << 20,
            "max.request.size", 8 << 20,
            "buffer.memory", 64L << 20,
            "key.serializer", ByteArraySerializer.class,
            "value.serializer", ByteArraySerializer.class);
    AtomicReference<Exception> failure = new AtomicReference<>();
    try (var producer = new KafkaProducer<byte[], byte[]>(settings)) {
      producer.send(new ProducerRecord<>(topic, value)).get();
      long began = System.nanoTime();
      long used = cpu();
      long records = 0;
      while (System.nanoTime() - began < seconds * 1e9) {
        for (int i = 0; i < 1000; i++) {
          producer.send(
              new ProducerRecord<>(topic, value),
              (metadata, error) -> failure.compareAndSet(null, error));
        }
        records += 1000;
      }
      producer.flush();
      if (failure.get() != null) {
        throw failure.get();
      }
      double took = (System.nanoTime() - began) / 1e9;
      System.out.printf(
          Locale.ROOT,
          "{\"records\": %d, \"seconds\": %.3f, \"records_per_s\": %.0f,"
              + " \"cpu_us_per_record\": %.3f}%n",
          records,
          took,
          records / took,
          (cpu() - used) / 1000.0 / Math.max(records, 1));
    }
  }

  private static long cpu() {
    return ProcessHandle.current().info().totalCpuDuration().orElse(Duration.ZERO).toNanos();
  }
}
