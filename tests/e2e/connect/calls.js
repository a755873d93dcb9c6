// Every unary call of the API by Connect's own client: calls.js URL DESCRIPTOR_SET. Prints what it found, as JSON; a
// fault ends it with another exit code than 0.
'use strict';

const assert = require('node:assert');
const fs = require('node:fs');
const { createFileRegistry, fromBinary } = require('@bufbuild/protobuf');
const { FileDescriptorSetSchema } = require('@bufbuild/protobuf/wkt');
const { Code, ConnectError, createClient } = require('@connectrpc/connect');
const { createConnectTransport } = require('@connectrpc/connect-node');

const [, , baseUrl, descriptors] = process.argv;
const registry = createFileRegistry(
  fromBinary(FileDescriptorSetSchema, fs.readFileSync(descriptors)));
const service = registry.getService('semaphore.v1.SemaphoreService');

async function calls(useBinaryFormat) {
  const transport = createConnectTransport({ baseUrl, httpVersion: '1.1', useBinaryFormat });
  const client = createClient(service, transport);
  const name = useBinaryFormat ? 'connect/binary' : 'connect/json';
  const called = new Set();
  const call = (method, request, options) => {
    called.add(method);
    return client[method[0].toLowerCase() + method.slice(1)](request, options);
  };

  const { lease } = await call('Acquire', { semaphore: name, limit: 1, ttlMs: 30000 });
  assert.equal(lease.semaphore, name);
  assert.equal(typeof lease.token, 'bigint');
  const { validity } = await call('Renew', { leaseId: lease.leaseId });
  assert.ok(validity.validForMs > 0);
  assert.equal((await call('Verify', { leaseId: lease.leaseId })).held, true);
  const act = { act: { case: 'describe', value: {} }, semaphore: name };
  assert.equal((await call('Administer', act)).result.value.semaphore.held, 1);

  const full = await call('Acquire', { semaphore: name }).catch((error) => error);
  assert.ok(full instanceof ConnectError);
  assert.equal(full.code, Code.ResourceExhausted);
  const [info] = full.findDetails(registry.getMessage('google.rpc.ErrorInfo'));
  assert.equal(info.reason, 'FULL');
  assert.equal(info.metadata.semaphore, name);
  assert.ok(info.metadata.advice.length > 0);

  const late = await call('Acquire', { semaphore: name, waitForever: true }, { timeoutMs: 200 })
    .catch((error) => error);
  assert.equal(late.code, Code.DeadlineExceeded);

  const abort = new AbortController();
  const waiting = call('Acquire', { semaphore: name, waitForever: true },
                       { signal: abort.signal }).catch((error) => error);
  for (let left = 1000; ; --left) {
    assert.ok(left > 0, 'it never waits');
    if ((await client.administer(act)).result.value.semaphore.waiting === 1n) break;
  }
  abort.abort();
  assert.equal((await waiting).code, Code.Canceled);
  for (let left = 1000; ; --left) {
    assert.ok(left > 0, 'it waits for ever');
    if ((await client.administer(act)).result.value.semaphore.waiting === 0n) break;
  }

  assert.equal((await call('Release', { leaseId: lease.leaseId })).released, 1);
  const { ticketId } = await call('Enqueue', { semaphore: name, payload: Buffer.from('work') });
  assert.match(ticketId, /^[0-9a-f]{32}$/);
  if (service.method.describeDaemon) await call('DescribeDaemon', {});
  return called;
}

async function main() {
  const json = await calls(false);
  const binary = await calls(true);
  const unary = service.methods.filter((each) => each.methodKind === 'unary').map((each) => each.name);
  assert.deepEqual([...json].sort(), [...unary].sort());
  assert.deepEqual([...binary].sort(), [...unary].sort());
  console.log(JSON.stringify({ called: unary.sort() }));
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
