/**
 * Measures the rate at which one process sends to a topic, or reads from it, and the processor time
 * of this process. It prints one line of JSON.
 *
 *     node dist/bench/bench.js produce SERVERS TOPIC [SECONDS [BYTES]]
 *     node dist/bench/bench.js consume SERVERS TOPIC
 */

import { Consumer, Producer } from "../index.js";

const [verb, servers = "localhost:7001", topic = "", seconds = "5", size = "100"] =
  process.argv.slice(2);

function figures(records: number, bytes: number, began: number, used: NodeJS.CpuUsage): void {
  const took = (performance.now() - began) / 1000;
  const cpu = process.cpuUsage(used);
  const result = {
    records,
    seconds: took,
    records_per_s: records / took,
    mib_per_s: bytes / took / 2 ** 20,
    cpu_us_per_record: (cpu.user + cpu.system) / Math.max(records, 1),
  };
  console.log(JSON.stringify(result));
}

async function produce(): Promise<void> {
  const producer = new Producer({ bootstrapServers: servers });
  const value = Buffer.alloc(Number(size));
  await producer.sendSync({ topic, value });
  const [began, used] = [performance.now(), process.cpuUsage()];
  let records = 0;
  while (performance.now() - began < Number(seconds) * 1000) {
    for (let i = 0; i < 1000; i++) await producer.send({ topic, value });
    records += 1000;
  }
  await producer.flush();
  figures(records, records * value.length, began, used);
  await producer.close();
}

/** Reads the present records of the topic. */
async function consume(): Promise<void> {
  const consumer = new Consumer({ bootstrapServers: servers, autoOffsetReset: "earliest" });
  await consumer.subscribe(topic);
  const ends = await consumer.endOffsets(consumer.assignment);
  const left = ends.reduce((sum, { offset }) => sum + Number(offset), 0);
  const [began, used] = [performance.now(), process.cpuUsage()];
  let records = 0;
  let bytes = 0;
  while (records < left) {
    for (const record of await consumer.poll()) {
      records++;
      bytes += record.value?.length ?? 0;
    }
  }
  figures(records, bytes, began, used);
  await consumer.close();
}

await (verb === "consume" ? consume() : produce());
