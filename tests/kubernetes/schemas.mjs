// schemas.mjs FOLDER: checks each object of the JSON array on standard input by the schema of its kind, and that each of its
// fields is one that the schema knows. The schemas are those of the packages in FOLDER/node_modules. Prints each finding;
// exit code 1 if there is any.
import { readFileSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { pathToFileURL } from 'node:url';

const modules = resolve(process.argv[2], 'node_modules');

// The validator of the object's kind. A class of the packages names the file that its schema was compiled into.
async function validatorOf({ apiVersion, kind }) {
  const home = apiVersion.startsWith('monitoring.coreos.com/')
    ? '@kubernetes-models/prometheus-operator' : 'kubernetes-models';
  const file = join(modules, home, apiVersion, `${kind}.js`);
  const [, schema] = readFileSync(file, 'utf8').match(/import\{validate\}from"([^"]+)"/);
  return (await import(pathToFileURL(resolve(file, '..', schema)))).validate;
}

// A validator reads each field that it knows, and lists those of a map: what is neither read nor listed is unknown to it.
function watched(value, seen) {
  if (typeof value !== 'object' || value === null) return value;
  return new Proxy(value, {
    get(target, key) {
      if (typeof key !== 'string' || !Object.hasOwn(target, key)) return Reflect.get(target, key);
      if (!seen.has(key)) seen.set(key, new Map());
      return watched(target[key], seen.get(key));
    },
  });
}

function unknownFields(value, seen, path) {
  if (typeof value !== 'object' || value === null) return [];
  return Object.keys(value).flatMap((key) => (seen.has(key)
    ? unknownFields(value[key], seen.get(key), `${path}/${key}`) : [`${path}/${key} is no field that the schema knows`]));
}

let count = 0;
for (const object of JSON.parse(readFileSync(0, 'utf8'))) {
  const validate = await validatorOf(object);
  const seen = new Map();
  const findings = validate(watched(object, seen))
    ? unknownFields(object, seen, '')
    : validate.errors.map(({ instancePath, keyword, params }) => `${instancePath}: ${keyword} ${JSON.stringify(params)}`);
  for (const finding of findings) console.log(`${object.kind} ${object.metadata?.name}: ${finding}`);
  count += findings.length;
}
process.exit(count === 0 ? 0 : 1);
