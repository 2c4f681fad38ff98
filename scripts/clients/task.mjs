// task.mjs BMCP ARGS… | URL: the SDK's client has browser_execute_bulk run as a task,
// and cancels another one.
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StdioClientTransport } from '@modelcontextprotocol/sdk/client/stdio.js';
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js';
import { CallToolResultSchema } from '@modelcontextprotocol/sdk/types.js';

const [command, ...args] = process.argv.slice(2);
const client = new Client({ name: 'btools', version: '0' });
await client.connect(command.startsWith('http')
  ? new StreamableHTTPClientTransport(new URL(command))
  : new StdioClientTransport({ command, args, env: process.env }));
const { tasks } = client.experimental;
const { tools } = await client.listTools(); // which compiles each output schema

// run has commands run as a task, and returns what the client is told of it.
async function run(commands, seen = () => {}) {
  const told = { statuses: [] };
  for await (const message of tasks.callToolStream({ name: 'browser_execute_bulk', arguments: { commands } }, CallToolResultSchema, { task: { ttl: 60_000 } })) {
    if (message.type === 'taskCreated') told.task = message.task;
    if (message.type === 'taskStatus') {
      told.statuses.push(message.task.status);
      told.message = message.task.statusMessage;
      await seen(message.task);
    }
    if (message.type === 'result') told.result = message.result;
    if (message.type === 'error') told.error = message.error.message;
  }
  return told;
}

const done = await run([
  { tool: 'browser_navigate', args: { url: 'data:text/html,<title>task</title><p>by a task' } },
  { tool: 'browser_snapshot', return_result: true },
]);
let cancelled = false;
const stopped = await run([{ tool: 'browser_wait_for', args: { time: 30 } }, { tool: 'browser_snapshot' }], async ({ taskId, statusMessage }) => {
  if (cancelled || !statusMessage?.includes('browser_wait_for')) return;
  cancelled = true;
  await tasks.cancelTask(taskId);
});
const rest = await tasks.getTaskResult(stopped.task.taskId, CallToolResultSchema);
const list = await tasks.listTasks();
console.log(JSON.stringify({
  offers: client.getServerCapabilities().tasks?.requests?.tools?.call !== undefined,
  support: tools.find((tool) => tool.name === 'browser_execute_bulk').execution?.taskSupport,
  ttl: done.task?.ttl, last: done.statuses.at(-1), states: done.result?.structuredContent.states,
  page: JSON.stringify(done.result?.structuredContent.results[1]), error: stopped.error, rest: rest.structuredContent.states,
  listed: list.tasks.map(({ status }) => status),
}));
await client.transport.terminateSession?.();
await client.close();
