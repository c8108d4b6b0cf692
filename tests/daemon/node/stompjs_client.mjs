// A program with @stomp/stompjs, an independent client: `node stompjs_client.mjs PORT VERSION`; says as JSON what it saw.
//
// It moves orders from A to invoices on B in transactions, one of which it gives up, and leaves in order.

import net from "node:net";
import { Client, Versions } from "@stomp/stompjs";

const [port, version] = [Number(process.argv[2]), process.argv[3]];

// What stompjs takes for a WebSocket: a plain TCP connection.
class TcpSocket {
  constructor(toPort) {
    this.url = `tcp://127.0.0.1:${toPort}`;
    this.readyState = 0;
    this.socket = net.createConnection(toPort, "127.0.0.1", () => {
      this.readyState = 1;
      this.onopen?.();
    });
    this.socket.setNoDelay(true);
    this.socket.on("data", (data) => this.onmessage?.({ data: data.buffer.slice(data.byteOffset, data.byteOffset + data.length) }));
    this.socket.on("error", (error) => this.onerror?.(error));
    this.socket.on("close", () => {
      this.readyState = 3;
      this.onclose?.({ code: 1000, wasClean: true });
    });
  }
  send(data) {
    this.socket.write(typeof data === "string" ? data : Buffer.from(data));
  }
  close() {
    this.readyState = 2;
    this.socket.end();
  }
  terminate() {
    this.readyState = 3;
    this.socket.destroy();
  }
}

function connected() {
  return new Promise((resolve, reject) => {
    const client = new Client({
      webSocketFactory: () => new TcpSocket(port),
      stompVersions: new Versions([version]),
      connectHeaders: { login: "user", passcode: "secret" },
      forceBinaryWSFrames: true,
      appendMissingNULLonIncoming: false,
      heartbeatIncoming: 500,
      heartbeatOutgoing: 500,
      reconnectDelay: 0,
    });
    client.onConnect = () => resolve(client);
    client.onStompError = (frame) => reject(new Error(frame.headers.message));
    client.activate();
  });
}

function receipt(client, id) {
  return new Promise((resolve) => client.watchForReceipt(id, () => resolve(id)));
}

const client = await connected();
const said = { version: client.connectedVersion, receipts: [], bodies: [], again: [], colour: "" };
for (let number = 0; number < 4; number++) {
  const done = receipt(client, `r${number}`);
  client.publish({
    destination: "/queue/A",
    body: `order ${number} of a:b\\c é`,
    headers: { receipt: `r${number}`, colour: "a:b", persistent: "true" },
  });
  said.receipts.push(await done);
}

await new Promise((resolve) => {
  client.subscribe(
    "/queue/A",
    async (message) => {
      said.bodies.push(message.body);
      said.again.push(message.headers.redelivered ?? "false");
      said.colour = message.headers.colour;
      const transaction = client.begin();
      client.publish({ destination: "/queue/B", body: `invoice for ${message.body}`, headers: { transaction: transaction.id } });
      message.ack({ transaction: transaction.id });
      if (said.bodies.length === 2) transaction.abort();
      else transaction.commit();
      if (said.bodies.length === 5) resolve();
    },
    { id: "1", ack: "client-individual", "prefetch-count": "1" },
  );
});

const binary = Uint8Array.from([0, 1, 2, 0, 255]);
const kept = receipt(client, "binary");
client.publish({ destination: "/queue/B", binaryBody: binary, headers: { receipt: "binary" } });
await kept;
await client.deactivate(); // DISCONNECT with a receipt

const other = await connected();
said.refused = await new Promise((resolve) => {
  other.onStompError = (frame) => resolve([frame.headers.message, frame.headers["reason-code"]]);
  other.publish({ destination: "/queue/NONE", body: "x" });
});
await other.deactivate({ force: true });
console.log(JSON.stringify(said));
