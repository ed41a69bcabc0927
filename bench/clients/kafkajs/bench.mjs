/**
 * Measures kafkajs, a Kafka client in JavaScript, with the line of JSON of
 * clients/node/src/bench/bench.ts.
 *
 *     npm ci && node bench.mjs SERVERS TOPIC [SECONDS [BYTES]]
 *
 * acks of all, idempotent, no compression. It has no linger: 1000 records share a call, and five
 * calls are in flight, so that many records wait for an answer, as in the other clients.
 */

import { Kafka, logLevel } from "kafkajs";

const [servers = "localhost:9092", topic = "", seconds = "5", size = "100"] = process.argv.slice(2);
const kafka = new Kafka({ brokers: servers.split(","), logLevel: logLevel.ERROR });
const producer = kafka.producer({ idempotent: true, maxInFlightRequests: 5 });
await producer.connect();
const value = Buffer.alloc(Number(size));
const messages = Array.from({ length: 1000 }, () => ({ value }));
await producer.send({ topic, acks: -1, messages });

const [began, used] = [performance.now(), process.cpuUsage()];
let records = 0;
async function sender() {
  while (performance.now() - began < Number(seconds) * 1000) {
    await producer.send({ topic, acks: -1, messages });
    records += messages.length;
  }
}
await Promise.all(Array.from({ length: 5 }, sender));

const took = (performance.now() - began) / 1000;
const cpu = process.cpuUsage(used);
const result = {
  records,
  seconds: took,
  records_per_s: records / took,
  mib_per_s: (records * value.length) / took / 2 ** 20,
  cpu_us_per_record: (cpu.user + cpu.system) / Math.max(records, 1),
};
console.log(JSON.stringify(result));
await producer.disconnect();
