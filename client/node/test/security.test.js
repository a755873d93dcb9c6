// TLS, client certificates and tokens, with a server that only looks at who calls.
'use strict';

const assert = require('node:assert/strict');
const { execFileSync } = require('node:child_process');
const fs = require('node:fs');
const os = require('node:os');
const path = require('node:path');
const { after, before, test } = require('node:test');

const grpc = require('@grpc/grpc-js');
const protoLoader = require('@grpc/proto-loader');

const { Client } = require('../index.js');

const PROTO_ROOT = path.join(__dirname, '../../../proto');

let folder;
let servers = [];
const file = (name) => path.join(folder, name);
const openssl = (...args) => execFileSync('openssl', args, { stdio: 'pipe' });

// A key and a certificate that `signer` signed, or itself.
function makeCertificate(name, subject, signer, extension) {
  const request = ['req', '-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:prime256v1', '-nodes', '-subj', `/CN=${subject}`,
    '-x509', '-days', '2', '-keyout', file(`${name}.key`), '-out', file(`${name}.pem`)];
  if (extension) request.push('-addext', extension);
  if (signer) request.push('-CA', file(`${signer}.pem`), '-CAkey', file(`${signer}.key`));
  openssl(...request);
}

// Resolves with its port. Its answer to Verify names the caller: holder is "SUBJECT AUTHORIZATION".
async function serve(mutual) {
  const options = { longs: String, enums: String, defaults: true, includeDirs: [PROTO_ROOT] };
  const definition = protoLoader.loadSync('semaphore/v1/semaphore.proto', options);
  const service = grpc.loadPackageDefinition(definition).semaphore.v1.SemaphoreService.service;
  const server = new grpc.Server();
  server.addService(service, {
    Verify(call, answer) {
      const subject = call.getAuthContext().sslPeerCertificate?.subject?.CN ?? '';
      const [authorization] = call.metadata.get('authorization');
      answer(null, { held: true, lease: { holder: `${subject} ${authorization ?? ''}`, slots: [{ first: 1, last: 1 }] } });
    },
  });
  const pair = { private_key: fs.readFileSync(file('server.key')), cert_chain: fs.readFileSync(file('server.pem')) };
  const credentials = grpc.ServerCredentials.createSsl(fs.readFileSync(file('ca.pem')), [pair], mutual);
  servers.push(server);
  return new Promise((resolve, reject) => {
    server.bindAsync('127.0.0.1:0', credentials, (error, port) => (error ? reject(error) : resolve(port)));
  });
}

before(() => {
  folder = fs.mkdtempSync(path.join(os.tmpdir(), 'semaphored-tls-'));
  makeCertificate('ca', 'ca', undefined);
  makeCertificate('other', 'other', undefined);
  makeCertificate('server', 'server', 'ca', 'subjectAltName=DNS:semaphored.example');
  makeCertificate('client', 'team-a', 'ca');
});

after(() => {
  for (const server of servers) server.forceShutdown();
  fs.rmSync(folder, { recursive: true, force: true });
});

async function callerOf(t, port, options) {
  const client = new Client({ endpoints: [`127.0.0.1:${port}`], connectTimeoutMs: 300, ...options });
  t.after(() => client.close());
  return (await client.verify({ leaseId: 'db#1' })).holder;
}

test('the daemon is verified by its authority and name', async (t) => {
  const port = await serve(false);
  const good = { caFile: file('ca.pem'), serverName: 'semaphored.example' };
  assert.equal(await callerOf(t, port, good), ' ');
  for (const wrong of [{ caFile: file('other.pem') }, { serverName: 'elsewhere.example' }, { serverName: '' }]) {
    await assert.rejects(callerOf(t, port, { ...good, ...wrong }), { code: 'UNAVAILABLE', reason: 'UNREACHABLE' });
  }
});

test('the client shows its certificate and its token, which is read again when the file has changed', async (t) => {
  const port = await serve(true);
  const good = {
    endpoints: [`127.0.0.1:${port}`],
    connectTimeoutMs: 300,
    caFile: file('ca.pem'),
    serverName: 'semaphored.example',
    certFile: file('client.pem'),
    keyFile: file('client.key'),
    tokenFile: file('token'),
  };
  fs.writeFileSync(file('token'), 'smt_one\n');
  const client = new Client(good);
  t.after(() => client.close());
  const holder = async () => (await client.verify({ leaseId: 'db#1' })).holder;
  assert.equal(await holder(), 'team-a Bearer smt_one');
  fs.writeFileSync(file('token'), 'smt_another\n');
  assert.equal(await holder(), 'team-a Bearer smt_another');
  await assert.rejects(callerOf(t, port, { ...good, certFile: '', keyFile: '' }), { code: 'UNAVAILABLE' });
});

test('an empty token file is read again and not sent; one that has gone is not forgotten', async (t) => {
  const port = await serve(false);
  fs.writeFileSync(file('rewritten'), '');
  const options = { caFile: file('ca.pem'), serverName: 'semaphored.example', tokenFile: file('rewritten') };
  const client = new Client({ endpoints: [`127.0.0.1:${port}`], ...options });
  t.after(() => client.close());
  const holder = async () => (await client.verify({ leaseId: 'db#1' })).holder;
  assert.equal(await holder(), ' ');
  for (const [text, sent] of [['smt_one', 'smt_one'], ['', 'smt_one'], ['smt_two', 'smt_two']]) {
    fs.writeFileSync(file('rewritten'), text);
    assert.equal(await holder(), ` Bearer ${sent}`);
  }
  fs.rmSync(file('rewritten'));
  assert.equal(await holder(), ' Bearer smt_two');
});

test('files that cannot be read are said at once', () => {
  assert.throws(() => new Client({ caFile: file('missing') }), /InvalidArgumentError: .*missing/);
  assert.throws(() => new Client({ tokenFile: file('missing') }), /InvalidArgumentError: .*missing/);
});
