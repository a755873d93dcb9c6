// Before packing: the API's definition goes into the package, since the source tree is not there where it is used.
'use strict';

const fs = require('node:fs');
const path = require('node:path');

const root = path.join(__dirname, '..');
const name = path.join('semaphore', 'v1', 'semaphore.proto');
const target = path.join(root, 'proto', name);
fs.mkdirSync(path.dirname(target), { recursive: true });
fs.copyFileSync(path.join(root, '..', '..', 'proto', name), target);
