package io.github.oncelog.client.bench;

import io.github.oncelog.client.Consumer;
import io.github.oncelog.client.ConsumerConfig;
import io.github.oncelog.client.Message;
import io.github.oncelog.client.OffsetReset;
import io.github.oncelog.client.Producer;
import io.github.oncelog.client.StoredRecord;
import java.time.Duration;
import java.util.Locale;

/**
 * Measures the rate at which one process sends to a topic, or reads from it, and the processor time
 * of this process. It prints one line of JSON.
 *
 * <pre>
 * java -cp ... Bench produce SERVERS TOPIC [SECONDS [BYTES]]
 * java -cp ... Bench consume SERVERS TOPIC
 * </pre>
 */
public final class Bench {
  private Bench() {}

  /** See above. */
  public static void main(String[] args) {
    if (args[0].equals("consume")) {
      consume(args[1], args[2]);
    } else {
      double seconds = args.length > 3 ? Double.parseDouble(args[3]) : 5;
      int size = args.length > 4 ? Integer.parseInt(args[4]) : 100;
      produce(args[1], args[2], seconds, size);
    }
  }

  private static long cpu() {
    return ProcessHandle.current().info().totalCpuDuration().orElse(Duration.ZERO).toNanos();
  }

  private static void print(long records, long bytes, long began, long used) {
    double took = (System.nanoTime() - began) / 1e9;
    System.out.printf(
        Locale.ROOT,
        "{\"records\": %d, \"seconds\": %.3f, \"records_per_s\": %.0f, \"mib_per_s\": %.1f,"
            + " \"cpu_us_per_record\": %.3f}%n",
        records,
        took,
        records / took,
        bytes / took / (1 << 20),
        (cpu() - used) / 1000.0 / Math.max(records, 1));
  }

  private static void produce(String servers, String topic, double seconds, int size) {
    try (Producer producer = new Producer(servers)) {
      Message message = Message.of(topic, new byte[size]);
      producer.send(message).get();
      long began = System.nanoTime();
      long used = cpu();
      long records = 0;
      while (System.nanoTime() - began < seconds * 1e9) {
        for (int i = 0; i < 1000; i++) {
          producer.send(message);
        }
        records += 1000;
      }
      producer.flush();
      print(records, records * size, began, used);
    }
  }

  /** Reads the present records of the topic. */
  private static void consume(String servers, String topic) {
    ConsumerConfig config = new ConsumerConfig(servers).autoOffsetReset(OffsetReset.EARLIEST);
    try (Consumer consumer = new Consumer(config)) {
      consumer.subscribe(topic);
      long left = 0;
      for (long end : consumer.endOffsets(consumer.assignment()).values()) {
        left += end;
      }
      long began = System.nanoTime();
      long used = cpu();
      long records = 0;
      long bytes = 0;
      while (records < left) {
        for (StoredRecord record : consumer.poll(Duration.ofSeconds(10))) {
          records++;
          bytes += record.value().length;
        }
      }
      print(records, bytes, began, used);
    }
  }
}
