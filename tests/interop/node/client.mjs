// Runs one command against the control plane and writes what it saw as one line of JSON.
//
//   node client.mjs create-and-watch '{"target": …, "key": …, "protos": […], "request": {…}}'
//   node client.mjs create           (the same; only creates)
//
// A refusal is an answer too: {"error": {"code", "message", "details": [{"type", …fields}]}}.

import grpc from "@grpc/grpc-js";
import protoLoader from "@grpc/proto-loader";
import protobuf from "protobufjs";

const SERVICE_FILE = "tdp/control/v1/task_service.proto";
const DETAIL_FILES = ["google/rpc/status.proto", "google/rpc/error_details.proto"];
const DETAILS_KEY = "grpc-status-details-bin";
const DEADLINE_MS = 60_000;

function connect({ target, protos }) {
  const options = { includeDirs: protos, longs: String, enums: String, keepCase: true };
  const loaded = grpc.loadPackageDefinition(protoLoader.loadSync(SERVICE_FILE, options));
  return new loaded.tdp.control.v1.TaskService(target, grpc.credentials.createInsecure());
}

function credentials({ key }) {
  const metadata = new grpc.Metadata();
  metadata.set("authorization", `Bearer ${key}`);
  return metadata;
}

function deadline() {
  return { deadline: Date.now() + DEADLINE_MS };
}

function create(client, order) {
  return new Promise((resolve, reject) => {
    client.CreateTask(order.request, credentials(order), deadline(), (error, response) =>
      error ? reject(error) : resolve(response),
    );
  });
}

async function watch(client, order, executionId) {
  const request = { execution_id: executionId, after_sequence: 0 };
  const seen = [];
  for await (const { event, execution } of client.WatchExecution(request, credentials(order), deadline())) {
    seen.push({ sequence: event.sequence, type: event.type, output: execution.output_json });
  }
  return seen;
}

// What came with the refusal, decoded by the files of google.rpc alone.
function details(error, protos) {
  const [encoded] = error.metadata.get(DETAILS_KEY);
  if (encoded === undefined) {
    return [];
  }
  const root = new protobuf.Root();
  root.resolvePath = (origin, name) => {
    const own = protos.map((folder) => `${folder}/${name}`).find((path) => protobuf.util.fs.existsSync(path));
    return protobuf.util.path.resolve(origin, own ?? name);
  };
  root.loadSync(DETAIL_FILES);
  const status = root.lookupType("google.rpc.Status").decode(encoded);
  return status.details.map((detail) => {
    const name = detail.type_url.slice(detail.type_url.lastIndexOf("/") + 1);
    const type = root.lookupType(name);
    return { type: name, ...type.toObject(type.decode(detail.value)) };
  });
}

const [command, text] = process.argv.slice(2);
const order = JSON.parse(text);
const client = connect(order);
let answer;
try {
  const created = await create(client, order);
  const events = command === "create-and-watch" ? await watch(client, order, created.execution_id) : [];
  answer = { created, events };
} catch (error) {
  if (typeof error.code !== "number") {
    throw error;
  }
  answer = {
    error: { code: error.code, message: error.details, details: details(error, order.protos) },
  };
}
process.stdout.write(`${JSON.stringify(answer)}\n`);
client.close();
