import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.Semaphore;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.atomic.AtomicReference;
import java.util.stream.Collectors;
import java.util.stream.LongStream;
import org.apache.kafka.clients.producer.Callback;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.errors.TimeoutException;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * Kafka's own producer. java_producers.py starts it, and speaks with it by lines.
 *
 * <pre>KafkaWriter load TOPIC PARTITIONS SETTING=VALUE...</pre>
 *
 * sends numbers to each partition, but not between the lines "hold" and "go", until "stop". It says
 * "delivered N", "fault TEXT", and at the end "sent N N N".
 *
 * <pre>KafkaWriter write TOPIC SETTING=VALUE...</pre>
 *
 * does as it is told: "begin", "send PARTITION VALUE", "flush", "commit", "abort". All but "send"
 * are answered, as the start is: "ok", "again TEXT" (the call timed out), "abort TEXT" (the
 * transaction must be aborted), "ended TEXT" (this producer can do nothing more). Without a
 * transactional.id the calls of transactions do nothing.
 */
public final class KafkaWriter {
  private static final int ROOM = 5_000; // records that wait for their acknowledgement
  private static final int TOLD_EVERY = 100;
  private static final long HELD_MS = 20;

  private KafkaWriter() {}

  public static void main(String[] args) throws Exception {
    boolean loads = args[0].equals("load");
    Map<String, Object> settings = new HashMap<>();
    for (int i = loads ? 3 : 2; i < args.length; i++) {
      String[] pair = args[i].split("=", 2);
      settings.put(pair[0], pair[1]);
    }
    settings.put("key.serializer", ByteArraySerializer.class);
    settings.put("value.serializer", ByteArraySerializer.class);
    var lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
    try (var producer = new KafkaProducer<byte[], byte[]>(settings)) {
      if (loads) {
        load(producer, args[1], Integer.parseInt(args[2]), lines);
      } else {
        write(producer, args[1], settings.containsKey("transactional.id"), lines);
      }
    }
  }

  private static void load(
      KafkaProducer<byte[], byte[]> producer, String topic, int partitions, BufferedReader lines)
      throws InterruptedException {
    var room = new Semaphore(ROOM);
    var delivered = new AtomicLong();
    Callback done =
        (metadata, error) -> {
          if (error != null) {
            say("fault " + error);
          }
          long count = delivered.incrementAndGet();
          if (count % TOLD_EVERY == 0) {
            say("delivered " + count);
          }
          room.release();
        };
    var told = new AtomicReference<>("go");
    var reader =
        new Thread(
            () -> {
              try {
                String line = "go";
                while (line != null && !line.equals("stop")) {
                  told.set(line);
                  line = lines.readLine();
                }
              } catch (IOException error) {
                say("fault " + error);
              }
              told.set("stop");
            });
    reader.setDaemon(true);
    reader.start();
    long[] sent = new long[partitions];
    while (!told.get().equals("stop")) {
      if (told.get().equals("hold")) {
        Thread.sleep(HELD_MS);
        continue;
      }
      for (int partition = 0; partition < partitions; partition++) {
        room.acquire();
        producer.send(record(topic, partition, Long.toString(sent[partition]++)), done);
      }
    }
    producer.flush();
    say("sent " + LongStream.of(sent).mapToObj(Long::toString).collect(Collectors.joining(" ")));
  }

  private static void write(
      KafkaProducer<byte[], byte[]> producer,
      String topic,
      boolean transactional,
      BufferedReader lines)
      throws IOException {
    var failure = new AtomicReference<Exception>();
    Runnable nothing = () -> {};
    answer(transactional ? producer::initTransactions : nothing, "ended ");
    for (String line = lines.readLine(); line != null; line = lines.readLine()) {
      String[] words = line.split(" ");
      switch (words[0]) {
        case "begin" -> answer(transactional ? producer::beginTransaction : nothing, "ended ");
        case "send" -> {
          try {
            producer.send(
                record(topic, Integer.parseInt(words[1]), words[2]),
                (metadata, error) -> failure.compareAndSet(null, error));
          } catch (KafkaException error) {
            failure.compareAndSet(null, error);
          }
        }
        case "flush" -> {
          producer.flush();
          Exception error = failure.getAndSet(null);
          say(error == null ? "ok" : "abort " + error);
        }
        case "commit" -> answer(transactional ? producer::commitTransaction : nothing, "abort ");
        case "abort" -> answer(transactional ? producer::abortTransaction : nothing, "ended ");
        default -> throw new IllegalArgumentException(line);
      }
    }
  }

  /** Makes a call, and says how it ended. other: the word for an error that is none of time. */
  private static void answer(Runnable call, String other) {
    try {
      call.run();
      say("ok");
    } catch (TimeoutException error) {
      say("again " + error);
    } catch (KafkaException error) {
      say(other + error);
    } catch (IllegalStateException error) {
      say("ended " + error);
    }
  }

  private static ProducerRecord<byte[], byte[]> record(String topic, int partition, String value) {
    return new ProducerRecord<>(topic, partition, null, value.getBytes(StandardCharsets.UTF_8));
  }

  private static synchronized void say(String line) {
    System.out.println(line.replace('\n', ' '));
    System.out.flush();
  }
}
