// kafkajs through the loss of a broker, over the command line and the control port.
import assert from "node:assert";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { createInterface } from "node:readline";
import { test } from "node:test";
import { Kafka, logLevel } from "kafkajs";

/** A cluster for one test; it ends with this process, however that ends. */
async function startCluster(brokers) {
  const up = spawn("kafkalike", ["up", "--brokers", brokers, "--memory", "--port", "0",
    "--control-port", "0", "--output", "json", "--until-exit-of", process.pid],
    { stdio: ["ignore", "pipe", "inherit"] });
  const [line] = await once(createInterface({ input: up.stdout }), "line");
  const facts = JSON.parse(line);
  return {
    bootstrap: facts.bootstrap_servers.split(","),
    async call(verb, args = {}) {
      const response = await fetch(`${facts.control}/${verb}`,
        { method: "POST", body: JSON.stringify(args) });
      const answer = await response.json();
      if (!response.ok) throw new Error(`${verb}: ${answer.error}`);
      return answer.result;
    },
    async stop() {
      up.kill("SIGTERM");
      await once(up, "exit");
    },
  };
}

test("orders survive their leader", async () => {
  const cluster = await startCluster(3);
  await cluster.call("prepare_groups");
  await cluster.call("create_topic", { topic: "orders" });
  const kafka = new Kafka({ brokers: cluster.bootstrap, logLevel: logLevel.NOTHING });
  const producer = kafka.producer({ idempotent: true });
  await producer.connect();
  await producer.send({ topic: "orders", messages: [{ value: "before" }] });
  const leader = await cluster.call("leader", { topic: "orders" });
  await cluster.call("kill", { broker: leader, at_once: true });
  await cluster.call("wait_leader", { topic: "orders", other_than: leader });
  await producer.send({ topic: "orders", messages: [{ value: "after" }] });
  await producer.disconnect();

  const consumer = kafka.consumer({ groupId: "test" });
  await consumer.connect();
  await consumer.subscribe({ topic: "orders", fromBeginning: true });
  const values = [];
  await new Promise((done) => consumer.run({
    eachMessage: async ({ message }) => {
      if (values.push(message.value.toString()) === 2) done();
    },
  }));
  assert.deepStrictEqual(values, ["before", "after"]);
  await consumer.disconnect();
  await cluster.stop();
});
