// The traces of tests/conformance on this client's session machine.
'use strict';

const { describe, test } = require('node:test');

const { play, traces } = require('./traces.js');

describe('conformance', () => {
  for (const trace of traces()) test(trace.name, () => play(trace));
});
