// The openai package of npm: chat, tools and responses, plain and streamed.
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";

const [folder, ...urls] = process.argv.slice(2);
const find = createRequire(pathToFileURL(folder + "/"));
const { OpenAI } = find("openai");

const river = "Tell me of the river and of all the towns that lie on it, one after the other. ".repeat(4);
const fn = {
  name: "look_up",
  description: "Looks a town up.",
  parameters: { type: "object", properties: { answer: { type: "string" } } },
};

async function said(client, messages, stream, more = {}) {
  const body = { model: "toy", messages, ...more };
  const reply = stream
    ? await client.chat.completions.stream(body).finalChatCompletion()
    : await client.chat.completions.create(body);
  return reply.choices[0].message;
}

async function chat(client, stream) {
  const messages = [];
  for (let turn = 0; turn < 3; turn++) {
    messages.push({ role: "user", content: `chat ${stream} ${turn} ${river}` });
    messages.push(await said(client, messages, stream));
  }
  return messages.filter((one) => one.role === "assistant").map((one) => one.content);
}

async function tools(client, stream) {
  const more = { tools: [{ type: "function", function: fn }] };
  const messages = [{ role: "user", content: `tools ${stream} ${river} #call` }];
  const called = await said(client, messages, stream, more);
  const [call] = called.tool_calls;
  messages.push(called, { role: "tool", tool_call_id: call.id, content: "a town of 42 people" });
  const told = await said(client, messages, stream, more);
  return [call.function.name, call.function.arguments, told.content];
}

async function responses(client, stream) {
  const items = [];
  const texts = [];
  for (let turn = 0; turn < 3; turn++) {
    items.push({ role: "user", content: `responses ${stream} ${turn} ${river}` });
    const body = { model: "toy", input: items };
    const response = stream
      ? await client.responses.stream(body).finalResponse()
      : await client.responses.create(body);
    items.push(...response.output);
    texts.push(response.output_text);
  }
  return texts;
}

async function everything(url) {
  const client = new OpenAI({ baseURL: url + "/v1", apiKey: "none", maxRetries: 0 });
  const found = [];
  for (const part of [chat, tools, responses]) {
    for (const stream of [false, true]) found.push(await part(client, stream));
  }
  return found;
}

const all = [];
for (const url of urls) all.push(await everything(url));
process.stdout.write(JSON.stringify(all));
