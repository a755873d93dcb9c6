// Before packing: the API's definition goes into the package, since the source tree is not there where it is used.
'use strict';

const fs = require('node:fs');
const path = require('node:path');

const root = path.join(__dirname, '..');
const names = [path.join('semaphore', 'v1', 'semaphore.proto'), path.join('google', 'rpc', 'status.proto')];
for (const name of names) {
  const target = path.join(root, 'proto', name);
  fs.mkdirSync(path.dirname(target), { recursive: true });
  fs.copyFileSync(path.join(root, '..', '..', 'proto', name), target);
}
