// fixture.mjs [PORT]: an MCP server with what the conformance suite asks of
// one, by stdio as a child of bmcp, or by HTTP to hold both against each other.
import { randomUUID } from 'node:crypto';
import { Server } from '@modelcontextprotocol/sdk/server/index.js';
import { StdioServerTransport } from '@modelcontextprotocol/sdk/server/stdio.js';
import { StreamableHTTPServerTransport } from '@modelcontextprotocol/sdk/server/streamableHttp.js';
import { createMcpExpressApp } from '@modelcontextprotocol/sdk/server/express.js';
import * as types from '@modelcontextprotocol/sdk/types.js';

const png = 'iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8DwHwAFBQIAX8jx0gAAAABJRU5ErkJggg==';
const wav = 'UklGRiYAAABXQVZFZm10IBAAAAABAAEAQB8AAAB9AAACABAAZGF0YQIAAAA=';

const text = (value) => ({ type: 'text', text: value });
const image = { type: 'image', data: png, mimeType: 'image/png' };
const embedded = (uri, mimeType, value) => ({ type: 'resource', resource: { uri, mimeType, text: value } });
const said = (...content) => ({ content });
const sleep = (ms) => new Promise((done) => setTimeout(done, ms));

const object = (properties = {}, required = undefined) => ({ type: 'object', properties, required });
const string = { type: 'string' };
const any = types.ResultSchema;

async function elicit(extra, message, properties, required = []) {
  const { action, content } = await extra.sendRequest(
    { method: 'elicitation/create', params: { message, requestedSchema: object(properties, required) } }, any);
  return said(text(`Elicitation completed: action=${action}, content=${JSON.stringify(content ?? {})}`));
}

async function sample(extra, prompt) {
  const { content } = await extra.sendRequest(
    { method: 'sampling/createMessage', params: { messages: [{ role: 'user', content: text(prompt) }], maxTokens: 100 } }, any);
  return said(text(`LLM response: ${content.text}`));
}

async function roots(extra) {
  const { roots } = await extra.sendRequest({ method: 'roots/list' }, any);
  return said(text(roots.map((r) => r.uri).join(' ')));
}

async function log(extra, ...lines) {
  for (const data of lines) {
    await extra.sendNotification({ method: 'notifications/message', params: { level: 'info', logger: 'fixture', data } });
    await sleep(50);
  }
  return said(text('logged'));
}

async function progress(extra) {
  const progressToken = extra._meta?.progressToken ?? 0;
  for (const progress of [0, 50, 100]) {
    await extra.sendNotification({ method: 'notifications/progress', params: { progressToken, progress, total: 100, message: `${progress} %` } });
    await sleep(50);
  }
  return said(text(String(progressToken)));
}

const titled = (key, word) => [1, 2, 3].map((n) => ({ const: `value${n}`, title: `${['First', 'Second', 'Third'][n - 1]} ${word}` }));
const options = { type: 'string', enum: ['option1', 'option2', 'option3'] };

// ask asks the host under an ID of its own, which hosts of the stateless
// protocol get to see as a key.
function ask(extra, id, method, params = {}) {
  return new Promise((answer) => {
    extra.waiting[id] = answer;
    extra.send({ jsonrpc: '2.0', id, method, params });
  });
}
const askUser = (extra, id, message, properties) =>
  ask(extra, id, 'elicitation/create', { message, requestedSchema: object(properties, Object.keys(properties)) });
const askModel = (extra, id, prompt) =>
  ask(extra, id, 'sampling/createMessage', { messages: [{ role: 'user', content: text(prompt) }], maxTokens: 100 });
const told = (...answers) => said(text(`state-ok ${JSON.stringify(answers)}`));

// What a tool does, and its input schema if it takes anything.
const tools = {
  test_simple_text: [() => said(text('This is a simple text response for testing.'))],
  test_image_content: [() => said(image)],
  test_audio_content: [() => said({ type: 'audio', data: wav, mimeType: 'audio/wav' })],
  test_embedded_resource: [() => said(embedded('test://embedded-resource', 'text/plain', 'This is an embedded resource content.'))],
  test_multiple_content_types: [() => said(text('Multiple content types test:'), image,
    embedded('test://mixed-content-resource', 'application/json', '{"test":"data","value":123}'))],
  test_tool_with_logging: [(args, extra) => log(extra, 'Tool execution started', 'Tool processing data', 'Tool execution completed')],
  test_logging_tool: [(args, extra) => log(extra, 'not asked for')],
  test_tool_with_progress: [(args, extra) => progress(extra)],
  test_error_handling: [() => ({ ...said(text('This tool intentionally returns an error for testing')), isError: true })],
  test_reconnection: [async (args, extra) => {
    extra.closeSSEStream?.();
    await sleep(100);
    return said(text('Reconnection test completed successfully.'));
  }],
  test_sampling: [(args, extra) => sample(extra, args.prompt), object({ prompt: string }, ['prompt'])],
  test_elicitation: [(args, extra) => elicit(extra, args.message, { username: string, email: string }, ['username', 'email']),
    object({ message: string }, ['message'])],
  test_elicitation_sep1034_defaults: [(args, extra) => elicit(extra, 'Please review', {
    name: { ...string, default: 'John Doe' },
    age: { type: 'integer', default: 30 },
    score: { type: 'number', default: 95.5 },
    status: { ...string, enum: ['active', 'inactive', 'pending'], default: 'active' },
    verified: { type: 'boolean', default: true },
  })],
  test_elicitation_sep1330_enums: [(args, extra) => elicit(extra, 'Please select', {
    untitledSingle: options,
    titledSingle: { ...string, oneOf: titled('value', 'Option') },
    legacyEnum: { ...string, enum: ['opt1', 'opt2', 'opt3'], enumNames: ['Option One', 'Option Two', 'Option Three'] },
    untitledMulti: { type: 'array', minItems: 1, maxItems: 3, items: options },
    titledMulti: { type: 'array', minItems: 1, maxItems: 3, items: { anyOf: titled('value', 'Choice') } },
  })],
  test_streaming_elicitation: [(args, extra) => elicit(extra, 'Which one?', { one: string })],
  test_missing_capability: [(args, extra) => {
    if (!extra.can.sampling) throw new types.McpError(-32021, 'sampling is missing', { requiredCapabilities: { sampling: {} } });
    return said(text('it is there'));
  }],
  test_trigger_tool_change: [(args, extra) => change(tools, extra, 'tools')],
  test_trigger_prompt_change: [(args, extra) => change(prompts, extra, 'prompts')],
  test_x_mcp_header: [(args) => said(text(args.region)), object({ region: { ...string, 'x-mcp-header': 'Region' } }, ['region'])],
  test_input_required_result_elicitation: [async (args, extra) => {
    const { content } = await askUser(extra, 'user_name', 'What is your name?', { name: string });
    return said(text(`Hello, ${content.name}!`));
  }],
  test_input_required_result_sampling: [async (args, extra) => told(await askModel(extra, 'capital_question', 'What is the capital of France?'))],
  test_input_required_result_list_roots: [async (args, extra) => told(await ask(extra, 'client_roots', 'roots/list'))],
  test_input_required_result_request_state: [async (args, extra) => told(await askUser(extra, 'confirm', 'Please confirm', { ok: { type: 'boolean' } }))],
  test_input_required_result_tampered_state: [async (args, extra) => told(await askUser(extra, 'confirm', 'Please confirm', { ok: { type: 'boolean' } }))],
  test_input_required_result_multiple_inputs: [async (args, extra) => told(...await Promise.all([
    askUser(extra, 'user_name', 'What is your name?', { name: string }), askModel(extra, 'greeting', 'Generate a greeting'),
    ask(extra, 'client_roots', 'roots/list')]))],
  test_input_required_result_multi_round: [async (args, extra) => told(
    await askUser(extra, 'step1', 'Step 1: What is your name?', { name: string }),
    await askUser(extra, 'step2', 'Step 2: What is your favorite color?', { color: string }))],
  test_input_required_result_capabilities: [async (args, extra) => told(...await Promise.all([
    extra.can.elicitation && askUser(extra, 'user_name', 'What is your name?', { name: string }),
    extra.can.sampling && askModel(extra, 'greeting', 'Generate a greeting')]))],
  // Those that run as tasks have a third element; those that run in no other way
  // return what the task does.
  greet: [({ name }) => said(text(`Hello, ${name}!`)), object({ name: string })],
  slow_compute: [async ({ seconds }) => {
    await sleep(seconds * 1000);
    return said(text('computed'));
  }, object({ seconds: { type: 'number' }, label: string }), 'optional'],
  failing_job: [() => async () => {
    await sleep(1000);
    return { ...said(text('it fails')), isError: true };
  }, object(), 'required'],
  test_tool_with_task: [async (args, extra) => {
    const { content } = await askUser(extra, 'user_name', 'What is your name?', { name: string });
    return async () => said(text(`Hello, ${content.name}!`));
  }, object(), 'required'],
  protocol_error_job: [() => { throw new types.McpError(types.ErrorCode.InternalError, 'it breaks'); }, object(), 'optional'],
  confirm_delete: [async ({ filename }, extra) => {
    const { content } = await askUser(extra, 'confirm', `Delete ${filename}?`, { confirm: { type: 'boolean' } });
    return said(text(`deleted: ${content.confirm}`));
  }, object({ filename: string }), 'optional'],
  multi_input: [async (args, extra) => told(...await Promise.all(['first', 'second'].map((id) => askUser(extra, id, 'Which?', { name: string })))),
    object(), 'optional'],
  json_schema_2020_12_tool: [(args) => said(text(JSON.stringify(args))), {
    $schema: 'https://json-schema.org/draft/2020-12/schema',
    type: 'object',
    $defs: { address: { $anchor: 'addressDef', type: 'object', properties: { street: string, city: string } } },
    properties: {
      name: string, address: { $ref: '#/$defs/address' }, contactMethod: { ...string, enum: ['phone', 'email'] }, phone: string, email: string,
    },
    allOf: [{ anyOf: [{ required: ['phone'] }, { required: ['email'] }] }],
    if: { properties: { contactMethod: { const: 'phone' } }, required: ['contactMethod'] },
    then: { required: ['phone'] },
    else: { required: ['email'] },
    additionalProperties: false,
  }],
};

// change adds to a list, or takes it away again.
async function change(list, extra, what) {
  if (list.added) delete list.added;
  else list.added = [() => said(text('added'))];
  await extra.sendNotification({ method: `notifications/${what}/list_changed` });
  return said(text('changed'));
}

const resources = {
  'test://static-text': { name: 'static-text', mimeType: 'text/plain', text: 'This is the content of the static text resource.' },
  'test://static-binary': { name: 'static-binary', mimeType: 'image/png', blob: png },
  'test://watched-resource': { name: 'watched-resource', mimeType: 'text/plain', text: 'Watched resource content' },
};

const user = (...content) => ({ messages: content.map((content) => ({ role: 'user', content })) });
const prompts = {
  test_simple_prompt: [() => user(text('This is a simple prompt for testing.'))],
  test_prompt_with_arguments: [({ arg1, arg2 }) => user(text(`Prompt with arguments: arg1='${arg1}', arg2='${arg2}'`)), 'arg1', 'arg2'],
  test_prompt_with_embedded_resource: [({ resourceUri }) =>
    user(embedded(resourceUri, 'text/plain', 'Embedded resource content for testing.'), text('Please process the embedded resource above.')), 'resourceUri'],
  test_input_required_result_prompt: [async (args, extra) => {
    const { content } = await askUser(extra, 'user_context', 'What context should the prompt use?', { context: string });
    return user(text(`In the context of ${content.context}`));
  }],
  test_prompt_with_image: [() => user(image, text('Please analyze the image above.'))],
};

function serve() {
  const server = new Server({ name: 'fixture', version: '1.0.0' }, {
    capabilities: {
      tools: { listChanged: true }, resources: { subscribe: true, listChanged: true }, prompts: { listChanged: true }, logging: {}, completions: {},
      tasks: { cancel: {}, requests: { tools: { call: {} } } },
    },
  });
  const waiting = {};
  server.heard = ({ id, result }) => waiting[id]?.(result);
  const on = (schema, answer) => server.setRequestHandler(schema, (request, extra) => answer(request, {
    ...extra, waiting, can: server.getClientCapabilities(), send: (m) => server.transport.send(m, { relatedRequestId: extra.requestId }),
  }));
  const unknown = (what, name) => {
    throw new types.McpError(types.ErrorCode.InvalidParams, `there is no ${what} ${name}`);
  };
  on(types.ListToolsRequestSchema, () => ({
    tools: Object.entries(tools).map(([name, [, inputSchema = object(), taskSupport]]) => ({
      name, description: `The suite's ${name}`, inputSchema, execution: taskSupport && { taskSupport },
    })),
  }));
  const begun = {}; // the results of tasks
  on(types.CallToolRequestSchema, async ({ params }, extra) => {
    const [does, , support] = tools[params.name] ?? unknown('tool', params.name);
    if (support !== 'required') return does(params.arguments ?? {}, extra);
    if (!params.task) throw new types.McpError(types.ErrorCode.MethodNotFound, `${params.name} runs as a task only`);
    const job = await does(params.arguments ?? {}, extra);
    const taskId = randomUUID();
    begun[taskId] = job();
    const now = new Date().toISOString();
    return { task: { taskId, status: 'working', ttl: params.task.ttl ?? null, createdAt: now, lastUpdatedAt: now } };
  });
  on(types.GetTaskPayloadRequestSchema, async ({ params: { taskId } }) => ({
    ...await (begun[taskId] ?? unknown('task', taskId)), _meta: { 'io.modelcontextprotocol/related-task': { taskId } },
  }));
  on(types.ListResourcesRequestSchema, () => ({
    resources: Object.entries(resources).map(([uri, { name, mimeType }]) => ({ uri, name, mimeType })),
  }));
  on(types.ListResourceTemplatesRequestSchema, () => ({
    resourceTemplates: [{ uriTemplate: 'test://template/{id}/data', name: 'template', mimeType: 'application/json' }],
  }));
  on(types.ReadResourceRequestSchema, ({ params: { uri } }) => {
    const id = /^test:\/\/template\/(\w+)\/data$/.exec(uri)?.[1];
    if (id) return { contents: [{ uri, mimeType: 'application/json', text: JSON.stringify({ id, templateTest: true, data: `Data for ID: ${id}` }) }] };
    if (!resources[uri]) throw new types.McpError(-32002, 'Resource not found', { uri });
    const { name, ...content } = resources[uri];
    return { contents: [{ uri, ...content }] };
  });
  on(types.SubscribeRequestSchema, () => ({}));
  on(types.UnsubscribeRequestSchema, () => ({}));
  on(types.ListPromptsRequestSchema, () => ({
    prompts: Object.entries(prompts).map(([name, [, ...names]]) => ({
      name, description: `The suite's ${name}`, arguments: names.map((name) => ({ name, required: true })),
    })),
  }));
  on(types.GetPromptRequestSchema, ({ params }, extra) => (prompts[params.name] ?? unknown('prompt', params.name))[0](params.arguments ?? {}, extra));
  on(types.CompleteRequestSchema, () => ({ completion: { values: [], total: 0, hasMore: false } }));
  return server;
}

// connect has answers to ask reach it; the SDK would take them for errors.
async function connect(server, transport) {
  await server.connect(transport);
  const { onmessage } = transport;
  transport.onmessage = (message, extra) => {
    if (typeof message.id === 'string' && message.method === undefined) server.heard(message);
    else onmessage(message, extra);
    // By stdio: what is never answered would cost a new process, and the suite
    // gives a task 5 s, less than a node takes to start on a busy machine.
    if (message.method === 'notifications/cancelled' && process.argv[2] === undefined) {
      const id = message.params.requestId;
      transport.send({ jsonrpc: '2.0', id, error: { code: -32800, message: 'it is cancelled' } });
    }
  };
}

// An event's ID is its stream's and its number.
function eventStore() {
  const events = [];
  return {
    async storeEvent(stream, message) {
      events.push({ stream, message });
      return `${stream}/${events.length}`;
    },
    async getStreamIdForEventId(id) {
      return id.slice(0, id.lastIndexOf('/'));
    },
    async replayEventsAfter(last, { send }) {
      const cut = last.lastIndexOf('/');
      const stream = last.slice(0, cut);
      for (let n = Number(last.slice(cut + 1)); n < events.length; n++) {
        if (events[n].stream === stream && events[n].message?.jsonrpc) await send(`${stream}/${n + 1}`, events[n].message);
      }
      return stream;
    },
  };
}

if (process.argv[2] === undefined) {
  await connect(serve(), new StdioServerTransport());
} else {
  const transports = {};
  createMcpExpressApp().all('/mcp', async (req, res) => {
    let transport = transports[req.headers['mcp-session-id']];
    if (!transport) {
      transport = new StreamableHTTPServerTransport({
        sessionIdGenerator: randomUUID, eventStore: eventStore(), retryInterval: 500,
        onsessioninitialized: (id) => { transports[id] = transport; },
      });
      await connect(serve(), transport);
    }
    await transport.handleRequest(req, res, req.body);
  }).listen(Number(process.argv[2]), '127.0.0.1', function () {
    console.log(this.address().port);
  });
}
