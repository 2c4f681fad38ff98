// har-check.mjs: validates the HTTP Archives that it is called with by the
// schema of HAR 1.2, and says "valid".
import Ajv from 'ajv';
import addFormats from 'ajv-formats';
import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';

const require = createRequire(import.meta.url);
const ajv = new Ajv({ strict: false, allErrors: true });
addFormats(ajv);
ajv.addMetaSchema(require('ajv/dist/refs/json-schema-draft-06.json'));
for (const schema of Object.values(require('har-schema'))) ajv.addSchema(schema);
const validate = ajv.getSchema('har.json#');
for (const path of process.argv.slice(2)) {
  if (!validate(JSON.parse(readFileSync(path, 'utf8')))) {
    console.error(path, ajv.errorsText(validate.errors, { separator: '\n' }));
    process.exit(1);
  }
}
console.log('valid');
